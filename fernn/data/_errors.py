"""The one error type of the data room."""


class DataError(ValueError):
    """A file, folder or download is not what it should be; the message names it and the fix."""
