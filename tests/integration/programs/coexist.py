"""torch, transformers, PyPI grpcio and the agent in one process, imported in the order given, all of them in use.

python coexist.py CONFIG NAME...     each NAME of torch, transformers, grpc, msprobe.pytorch
"""

import concurrent.futures
import importlib
import sys

from say import say


def serve():
    import grpc

    handler = grpc.method_handlers_generic_handler(
        "test.Echo",
        {"Say": grpc.unary_unary_rpc_method_handler(lambda request, context: b"echo " + request)},
    )
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


def call(target, message):
    import grpc

    with grpc.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        return channel.unary_unary("/test.Echo/Say")(message, timeout=20)


def main():
    config, *order = sys.argv[1:]
    for name in order:
        importlib.import_module(name)
    server, target = serve()
    assert call(target, b"before") == b"echo before"

    import nets
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=config)
    model = nets.qwen2()
    tokens = nets.tokens()
    for message in (b"first", b"second"):
        debugger.start(model=model)
        model(input_ids=tokens, labels=tokens).loss.backward()
        assert call(target, message) == b"echo " + message
        debugger.stop()
        debugger.step()
    debugger.wait()
    assert call(target, b"after") == b"echo after"
    server.stop(None)
    say("TOGETHER", *order)


if __name__ == "__main__":
    main()
