"""What programs report in one line: input that a user can put right, and failures while running."""


class InputError(ValueError):
    """Bad input. The message is one line that names what is wrong and what would work.

    Programs print it to standard error and exit with code 2, never with a traceback.
    """


class EngineError(RuntimeError):
    """A failure while running that no other input would have avoided. One line; programs exit with code 1."""
