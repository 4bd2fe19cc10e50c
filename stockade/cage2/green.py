"""Green's turn: the staff sleep, or scan the ports of a host and so make harmless noise."""

from stockade.cage2 import chance
from stockade.cage2.jit import compiled
from stockade.cage2.ledger import take_ports
from stockade.cage2.scenario import NOBODY
from stockade.cage2.state import listeners, open_ports


@compiled
def green_acts(world, ledger):
    """The active green agent."""
    host = chance.green_target(world, ledger)
    world.green_target = host
    if host == NOBODY:
        return
    world.green_ports = open_ports(world, host)
    world.green_connections = listeners(world, host)
    take_ports(ledger, host, world.green_connections)
