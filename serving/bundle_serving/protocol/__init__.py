"""How the server is asked: over sockets and gRPC, with requests whose answers are known."""
