/** Where a URL leads: the name or address, IPv6 without brackets, and the port, that of the scheme where none is given. */
export function hostAndPort({ hostname, port, protocol }: URL): { readonly host: string; readonly port: number } {
  const usual = protocol === "https:" ? 443 : 80;
  return { host: hostname.replace(/^\[|\]$/g, ""), port: port === "" ? usual : Number(port) };
}
