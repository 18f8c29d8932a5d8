/** Whether a host name or address, with or without brackets, can only mean this machine: `localhost`, 127.0.0.0/8, `::1`. */
export function isLoopbackName(name: string): boolean {
  return name === "127.0.0.1" || name === "localhost" || name === "[::1]" || name === "::1" || LOOPBACK_V4.test(name);
}

const LOOPBACK_V4 = /^127(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}$/;
