// Loaded before each tool: whoever asks for every interface gets loopback. Done where the address is
// given to the kernel, because some tools read their port at once, which a listen() with a host forbids.
const { TCP } = process.binding("tcp_wrap");
const { bind } = TCP.prototype;
const EINVAL = -22; // Node then asks for 0.0.0.0
const bind6 = TCP.prototype.bind6;

TCP.prototype.bind = function (address, ...rest) {
  return bind.call(this, address === "0.0.0.0" ? "127.0.0.1" : address, ...rest);
};
TCP.prototype.bind6 = function (address, ...rest) {
  return address === "::" ? EINVAL : bind6.call(this, address, ...rest);
};
