"""The one exception for what a user can put right: a file, a flag, a request."""


class InputError(ValueError):
    """Bad input. The message is one line that names what is wrong and what would work.

    Programs print it to standard error and exit with code 2, never with a traceback.
    """
