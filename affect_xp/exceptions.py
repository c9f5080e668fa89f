"""Errors and warnings in one hierarchy: `except AffectError` catches all that the library raises itself.

::

    AffectError                     base of all errors; itself: a model that another thread is at, or that
    │                               was interrupted while it wrote
    ├── InputError (ValueError)             an argument has a value that cannot be used
    ├── InputTypeError (TypeError)          an argument is of a type that cannot be used
    ├── NotFittedError (AttributeError)     a result was asked for before the first step
    ├── FileFormatError (ValueError)        a file is no model, is damaged, or is of a newer version
    └── SaveError (OSError)                 a model could not be written; the old file is still whole

    AffectWarning (UserWarning)     base of all warnings
    ├── ConvergenceWarning                  an iteration stopped before it converged
    ├── InputWarning                        what was given is hardly what was meant; said at the first step
    ├── PrecisionWarning                    sums are accumulated in less than double precision
    ├── ScaleWarning                        units or an offset rule the features; said once for a model
    └── SkewedWarning                       a few large similarities rule the others; said once for a model

Each error is also of the class of Python's in brackets: whoever catches that one catches ours. A message
names the argument, its value and the remedy. A step that raises leaves the model as it was; only a step
interrupted (Ctrl-C, no memory) while it wrote over the smoothed proximities asks for `reset()`.

What does not come from here: an ImportError where a library is missing that was asked for (it says what to
install), an error raised by a function of the caller (a clusterer, an `alpha`, a callback), which passes
unchanged, and a MemoryError.

Warnings say what to do. `warnings.simplefilter("error", AffectWarning)` makes them errors, which reject the
step; `simplefilter("ignore", ...)` silences them.
"""


class AffectError(Exception):
    """Base of every error raised by this library."""


class InputError(AffectError, ValueError):
    """An argument has a value that cannot be used; the message says which and what to do."""


class InputTypeError(AffectError, TypeError):
    """An argument is of a type that cannot be used; the message says which and what to do."""


class NotFittedError(AffectError, AttributeError):
    """A result was asked for before the first step."""


class FileFormatError(AffectError, ValueError):
    """A file does not hold a model, is damaged, or is of a newer version; the message says which."""


class SaveError(AffectError, OSError):
    """A model could not be written to a file; what was there before is still whole."""


class AffectWarning(UserWarning):
    """Base of every warning of this library."""


class ConvergenceWarning(AffectWarning):
    """An iteration stopped before it converged; the message says how to let it."""


class InputWarning(AffectWarning):
    """Proximities look like what the clusterer does not take; the message says why, and what to do."""


class PrecisionWarning(AffectWarning):
    """Sums are accumulated in less than double precision."""


class ScaleWarning(AffectWarning):
    """Units or an offset of features rule their similarities; the message says what was done, or helps."""


class SkewedWarning(AffectWarning):
    """A few large similarities rule the others; the message says which transform helps."""
