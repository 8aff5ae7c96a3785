"""No two programs of a test run are told to listen on the same port."""

import socket

from tests.ports import HOST, free_port, free_ports


def test_a_port_is_given_once_also_when_the_system_gives_it_again() -> None:
    given = [free_port() for _ in range(400)] + free_ports(200)
    assert len(set(given)) == len(given)


def test_a_port_given_can_be_listened_on() -> None:
    with socket.socket() as program:
        program.bind((HOST, free_port()))
