"""Errors and warnings in one hierarchy: `except AffectError` catches all errors of this library.

::

    AffectError                     base of all errors; raised itself if another thread is using the model, or
    │                               if the model was interrupted while it wrote
    ├── InputError (ValueError)             an argument has an invalid value
    ├── InputTypeError (TypeError)          an argument has an invalid type
    ├── NotFittedError (AttributeError)     a result was requested before the first step
    ├── FileFormatError (ValueError)        a file is not a model, is damaged, or has a newer version
    └── SaveError (OSError)                 a model could not be written; the old file is intact

    AffectWarning (UserWarning)     base of all warnings
    ├── ConvergenceWarning                  an iteration stopped before it converged
    ├── InputWarning                        the input is probably not as intended; issued at the first step
    ├── PrecisionWarning                    sums are accumulated in less than double precision
    ├── ScaleWarning                        units or an offset dominate the features; issued once per model
    └── SkewedWarning                       a few large similarities dominate; issued once per model

Each error is also an instance of the built-in class in brackets. Messages name the argument, its value and
the remedy. A step that raises leaves the model unchanged. The exception is a step that is interrupted
(Ctrl-C, no memory) while it overwrites the smoothed proximities: call `reset()` after it.

Three other errors may occur: an ImportError if a required library is missing (it says what to install), a
MemoryError, and errors raised by functions of the caller (a clusterer, an `alpha`, a callback), which are
not changed.

Warnings say what to do. `warnings.simplefilter("error", AffectWarning)` turns them into errors, which reject
the step; `simplefilter("ignore", ...)` silences them.
"""

MAX_SHOWN = 200  # characters of a value in a message


def shown(value: object) -> str:
    """Return the value of an argument for a message: one line, of a long one the start and the end."""
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN // 2]} ... {text[-MAX_SHOWN // 4 :]}"


class AffectError(Exception):
    """Base class of all errors of this library."""


class InputError(AffectError, ValueError):
    """An argument has an invalid value; the message names the argument and the remedy."""


class InputTypeError(AffectError, TypeError):
    """An argument has an invalid type; the message names the argument and the remedy."""


class NotFittedError(AffectError, AttributeError):
    """A result was requested before the first step."""


class FileFormatError(AffectError, ValueError):
    """A file does not contain a model, is damaged, or has a newer version; the message says which."""


class SaveError(AffectError, OSError):
    """A model could not be written to a file; an existing file is intact."""


class AffectWarning(UserWarning):
    """Base class of all warnings of this library."""


class ConvergenceWarning(AffectWarning):
    """An iteration stopped before it converged; the message gives the remedy."""


class InputWarning(AffectWarning):
    """The proximities do not look like the kind that the clusterer takes; the message gives the reason."""


class PrecisionWarning(AffectWarning):
    """Sums are accumulated in less than double precision."""


class ScaleWarning(AffectWarning):
    """Units or an offset of the features dominate their similarities; the message gives the remedy."""


class SkewedWarning(AffectWarning):
    """A few large similarities dominate the others; the message names a transform that helps."""
