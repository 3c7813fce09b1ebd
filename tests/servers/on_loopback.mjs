// Loaded before a server that listens on every interface: it listens on loopback.
import { Server } from "node:net";

const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...rest) {
  const callbacks = rest.filter((argument) => typeof argument === "function");
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...callbacks);
};
