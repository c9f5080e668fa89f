"""Errors and warnings of the library."""


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


class PrecisionWarning(AffectWarning):
    """Sums are accumulated in less than double precision."""
