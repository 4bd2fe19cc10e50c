"""Green's turn: the staff sleep, or scan the ports of a host and so make harmless noise."""

from stockade.cage2 import chance
from stockade.cage2.jit import compiled
from stockade.cage2.ledger import take_ports
from stockade.cage2.scenario import NOBODY
from stockade.cage2.state import listeners, open_ports

#: What green does: it sleeps, is active as in the reference, or at the rate that red's plan names.
GREEN_SLEEPS, GREEN_ACTS, GREEN_FOLLOWS_PLAN = range(3)


@compiled
def green_acts(world, ledger, settings):
    """The active green agent."""
    if settings.green == GREEN_FOLLOWS_PLAN:
        rate = settings.green_rate[world.plan, world.phase]
    else:
        rate = chance.GREEN_RATE
    host = chance.green_target(world, ledger, rate)
    world.green_target = host
    if host == NOBODY:
        return
    world.green_ports = open_ports(world, host)
    world.green_connections = listeners(world, host)
    take_ports(ledger, host, world.green_connections)
