"""The demo agent: an order desk whose effects can be counted."""

from celeriac.connectors.order_support.agent import order_support
from celeriac.connectors.order_support.desk import OrderDesk

__all__ = ["OrderDesk", "order_support"]
