"""The executor of serial cells whose body drives a pool."""

from __future__ import annotations

from concurrent.futures import Executor, Future

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class InlineExecutor(Executor):
    """Runs each task at once in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` now; the future is done when this returns. Source: concurrent.futures.Executor.submit."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
