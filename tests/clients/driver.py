"""What both Python drivers share: the request from the command line, names that resolve to one address, and the report.

The argument is a JSON object: url, address (where every name leads), headers, mode ("legacy", "auto" or "modern"),
transport ("streamableHttp" or "sse"), and optionally command (a program that serves its standard streams, in place of the url),
listen (open a stream of changes first), cancel: {call, after} (begin a call, and cancel it as soon as another beside it is
answered), call, where a call is {name, arguments}, and interrupted (a port of 127.0.0.1: after the call, wait until whoever listens there
hangs up, and make it twice more). The report is one JSON object on standard output.
"""

import asyncio
import json
import logging
import socket
import sys
import traceback


def resolve_to(address):
    """Lead every name to one address, as a person's DNS leads a public host to the ingress controller."""
    real = socket.getaddrinfo

    def lookup(host, port, *args, **kwargs):
        return real(address, port, *args, **kwargs)

    socket.getaddrinfo = lookup


def text_of(result):
    """The text parts of a tool's result."""
    return [part.text for part in result.content if getattr(part, "text", None) is not None]


async def cancelled(begin, cancel):
    """Begin a call, cancel it as soon as another beside it is answered, and tell whether it ended so."""
    begun = asyncio.create_task(begin(cancel["call"]))
    await begin(cancel["after"])
    begun.cancel()
    try:
        await begun
    except asyncio.CancelledError:
        return True
    return False


def says(error):
    """An error in words."""
    found = cause(error)
    return f"{type(found).__name__}: {found}"


async def after(begin, call, port):
    """Wait until whoever listens at the port hangs up, make the call twice, and tell the error of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.read()
    writer.close()
    errors = []
    for _ in range(2):
        try:
            result = await asyncio.wait_for(begin(call), timeout=30)
            errors.append(" ".join(text_of(result)) if result.is_error else None)
        except Exception as error:
            errors.append(says(error))
    return errors


async def calls(request, begin):
    """What came of the calls that a request asks for. `begin` begins one."""
    report = {}
    if cancel := request.get("cancel"):
        report["cancelled"] = await cancelled(begin, cancel)
    if call := request.get("call"):
        result = await begin(call)
        report |= {"text": text_of(result), "isError": bool(result.is_error)}
        if port := request.get("interrupted"):
            report["after"] = await after(begin, call, port)
    return report


def cause(error):
    """The innermost of grouped errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def mode(request):
    """The mode in the words of the Python clients, which name the one version that is modern."""
    return "2026-07-28" if request["mode"] == "modern" else request["mode"]


def main(session):
    """Run `session(request)`, which fills a report, and print it."""
    logging.disable(logging.CRITICAL)
    request = json.loads(sys.argv[1])
    if request.get("address"):
        resolve_to(request["address"])
    try:
        report = asyncio.run(session(request))
    except BaseException as error:
        report = {"error": says(error)}
        if request.get("debug"):
            traceback.print_exc()
    print(json.dumps(report))
