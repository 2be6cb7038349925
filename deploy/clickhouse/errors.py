"""The engine's errors: their codes, and the HTTP status a ClickHouse server gives them."""

import re

AUTHENTICATION_FAILED = 516
ACCESS_DENIED = 497
BAD_ARGUMENTS = 36
INTO_OUTFILE_NOT_ALLOWED = 358
NOT_IMPLEMENTED = 48
QUERY_IS_TOO_LARGE = 425
QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING = 216
READONLY = 164
REQUIRED_PASSWORD = 194
SESSION_IS_LOCKED = 373
SESSION_NOT_FOUND = 372
SERVER_SHUTS_DOWN = 198
STD_EXCEPTION = 1001
SYNTAX_ERROR = 62
TOO_MANY_SIMULTANEOUS_QUERIES = 202
UNKNOWN_SETTING = 115
UNKNOWN_FORMAT = 73
SOCKET_TIMEOUT = 209
CANNOT_DECOMPRESS = 271

NAMES = {
    AUTHENTICATION_FAILED: "AUTHENTICATION_FAILED",
    ACCESS_DENIED: "ACCESS_DENIED",
    BAD_ARGUMENTS: "BAD_ARGUMENTS",
    INTO_OUTFILE_NOT_ALLOWED: "INTO_OUTFILE_NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    QUERY_IS_TOO_LARGE: "QUERY_IS_TOO_LARGE",
    QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING: "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING",
    READONLY: "READONLY",
    REQUIRED_PASSWORD: "REQUIRED_PASSWORD",
    SESSION_IS_LOCKED: "SESSION_IS_LOCKED",
    SESSION_NOT_FOUND: "SESSION_NOT_FOUND",
    SERVER_SHUTS_DOWN: "SERVER_SHUTS_DOWN",
    STD_EXCEPTION: "STD_EXCEPTION",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    TOO_MANY_SIMULTANEOUS_QUERIES: "TOO_MANY_SIMULTANEOUS_QUERIES",
    UNKNOWN_SETTING: "UNKNOWN_SETTING",
    UNKNOWN_FORMAT: "UNKNOWN_FORMAT",
    SOCKET_TIMEOUT: "SOCKET_TIMEOUT",
    CANNOT_DECOMPRESS: "CANNOT_DECOMPRESS",
}

# What `exceptionCodeToHTTPStatus` of a ClickHouse server answers; every other code is a 500.
_STATUSES = {
    400: (6, 26, 27, 36, 38, 41, 42, 43, 53, 62, 69, 70, 72, 130, 131, 190, 271, 353, 456, 457),
    401: (REQUIRED_PASSWORD,),
    403: (192, 193, ACCESS_DENIED, AUTHENTICATION_FAILED),
    404: (7, 46, 47, 50, 56, 60, 63, UNKNOWN_FORMAT, 78, 81, UNKNOWN_SETTING, 141, SESSION_NOT_FOUND),
    408: (159,),
    413: (QUERY_IS_TOO_LARGE,),
    501: (NOT_IMPLEMENTED,),
    503: (SERVER_SHUTS_DOWN, TOO_MANY_SIMULTANEOUS_QUERIES),
}
_STATUS_OF = {code: status for status, codes in _STATUSES.items() for code in codes}

_CODE = re.compile(r"Code: (\d+)\. ")


class QueryError(Exception):
    """A statement failed: `code` is ClickHouse's number of the error, the text what a server would say."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @classmethod
    def of(cls, code: int, reason: str) -> "QueryError":
        """An error of this interface, worded as the engine words its own."""
        return cls(code, f"Code: {code}. DB::Exception: {reason} ({NAMES[code]})")

    @classmethod
    def from_engine(cls, text: str) -> "QueryError":
        """The engine reports errors as text that starts with their code; text without one is of the binding itself."""
        found = _CODE.search(text)
        return cls(int(found[1]), text[found.start() :]) if found else cls.of(STD_EXCEPTION, text)

    @property
    def status(self) -> int:
        """HTTP status."""
        return _STATUS_OF.get(self.code, 500)
