"""What `@test.shared` made, in each process and interpreter that runs workers."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

shared: "Any" = None
