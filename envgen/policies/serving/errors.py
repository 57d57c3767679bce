"""Errors of failed requests, as OpenAI's JSON."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError


class ApiError(Exception):
    """Raised when a request can't be answered; never leaves the server.

    Attributes:
        status: of the HTTP reply.
        headers: more headers of the reply.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self._code = code
        self._param = param

    def body(self) -> dict[str, Any]:
        """The JSON of the reply."""
        kind = _TYPES.get(
            self.status, "invalid_request_error" if self.status < 500 else "api_error"
        )
        error = {"message": str(self), "type": kind, "param": self._param, "code": self._code}
        return {"error": error}


_TYPES = {401: "authentication_error", 429: "rate_limit_error", 503: "overloaded_error"}


def too_long(window: int, num_prompt: int | None = None) -> ApiError:
    """The prompt does not fit the model's window; worded as clients look for it. None: by far."""
    shown = "more" if num_prompt is None else num_prompt
    return ApiError(
        f"This model's maximum context length is {window} tokens, of which one is for the reply; the "
        f"prompt has {shown}. Make it shorter.",
        code="context_length_exceeded",
        param="messages",
    )


def invalid(error: ValidationError) -> ApiError:
    """The first thing that a request model refused."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return ApiError(
            f"Unknown parameter: {where!r}.", code="unknown_parameter", param=where or None
        )
    if first["type"] == "missing":
        return ApiError(
            f"Missing required parameter: {where!r}.",
            code="missing_required_parameter",
            param=where or None,
        )
    message = first["msg"].removeprefix("Value error, ")
    got = repr(first["input"])
    shown = got if len(got) <= 80 else got[:77] + "..."
    return ApiError(
        f"Invalid value for {where!r}: {message} (got {shown})." if where else f"{message}.",
        code="invalid_value",
        param=where or None,
    )
