from pytest_ftgate import ftgate, serial, threads

import socket
import socketserver
import threading


@ftgate.compare(threads, serial)
def test_connect(worker):
    socket.create_connection(worker.shared.server_address).close()


@test_connect.shared
def serve(context):
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    threading.Thread(target=server.serve_forever).start()
    return server


@test_connect.teardown("launch")
def stop(server):
    server.shutdown()
    server.server_close()
