"""The exception for errors the user can fix."""


class GeomAttError(Exception):
    """Something the user can fix. The message says what happened and what to do next.

    The command line prints it without a traceback; Python callers can catch it.
    """
