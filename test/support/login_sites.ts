import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Duplex } from "node:stream";

/** Request that a host of the sites got. */
export interface SiteRequest {
  readonly method: string;
  readonly host: string;
  readonly path: string;
  readonly cookie: string;
}

/** Sites of many hosts behind one proxy, which stands for the name servers of the world. */
export interface LoginSites {
  /** As `http://127.0.0.1:4711`, for `[proxy] http` with `resolve = "proxy"` */
  readonly proxy: string;
  readonly requests: readonly SiteRequest[];
  /** Returns the cookies that a host got at a path, one text for each request */
  cookiesAt(host: string, path: string): readonly string[];
  close(): Promise<void>;
}

type Answer = (response: ServerResponse, request: SiteRequest) => void;

const html = (response: ServerResponse, body: string, cookies: readonly string[] = []) => {
  response.writeHead(200, { "content-type": "text/html", "set-cookie": [...cookies] });
  response.end(body);
};
const redirect = (response: ServerResponse, location: string, cookies: readonly string[] = []) => {
  response.writeHead(302, { location, "set-cookie": [...cookies] });
  response.end();
};
const AGE = "Max-Age=86400; Path=/";

/**
 * A site that signs in through another host, in a window that a person opens at `/`. Everything that a person would click is done by the
 * pages. `/who` says whom the site knows, by cookies and by its local storage.
 */
const ANSWERS: Readonly<Record<string, Answer>> = {
  "app.example.test/": (response) => redirect(response, "http://sso.idp.test/auth"),
  "sso.idp.test/auth": (response) =>
    redirect(response, "http://app.example.test/back?code=1", [`idp=idp-secret; ${AGE}`]),
  "app.example.test/back": (response) =>
    html(
      response,
      `<title>Signed in</title><h1>Signed in</h1><img src="http://tracker.test/p">
       <script>localStorage.setItem("token", "stored-secret"); sessionStorage.setItem("other", "x");</script>`,
      [`session=app-secret; HttpOnly; ${AGE}`, `parent=parent-secret; Domain=example.test; ${AGE}`],
    ),
  "tracker.test/p": (response) => html(response, "", [`tracker=tracker-secret; ${AGE}`]),
  "app.example.test/who": (response, { cookie }) =>
    html(
      response,
      `<title>?</title><p>${
        cookie === "" ? "nobody" : "known"
      }</p><script>document.title = localStorage.getItem("token") ?? "no token"</script>`,
    ),
  "app.example.test/renew": (response) => html(response, "<title>Renewed</title>", [`session=renewed-secret; ${AGE}`]),
  "evil.test/": (response) =>
    html(
      response,
      `<title>Evil</title><iframe src="http://app.example.test/frame"></iframe><img src="http://app.example.test/img">
       <form method="post" action="http://app.example.test/form"></form>
       <script>fetch("http://app.example.test/fetch", { credentials: "include", mode: "no-cors" })
         .catch(() => {}).finally(() => document.forms[0].submit())</script>`,
    ),
  "short.test/": (response) => html(response, "<title>Short</title>", [`session=short; ${AGE}`]),
};

/** Opens the sites. Further answers are by host and path, such as `app.example.test/who`; `*` answers what no other does. */
export async function openLoginSites(more: Readonly<Record<string, Answer>> = {}): Promise<LoginSites> {
  const requests: SiteRequest[] = [];
  const answers = { ...ANSWERS, ...more };
  const server = createServer((incoming: IncomingMessage, response) => {
    const url = new URL(incoming.url ?? "/", `http://${incoming.headers.host}`);
    const { method = "", headers } = incoming;
    const request = { method, host: url.hostname, path: url.pathname, cookie: headers.cookie ?? "" };
    requests.push(request);
    const answer = answers[`${request.host}${request.path}`] ?? answers["*"];
    if (answer === undefined) html(response, "<title>Nothing</title>");
    else answer(response, request);
  });
  // Tunnels are no connections of the server any more: it would wait for them
  const tunnels = new Set<Duplex>();
  server.on("connect", (_request, client, head) => {
    const { port } = server.address() as AddressInfo;
    const inner = connect(port, "127.0.0.1", () => {
      client.write("HTTP/1.1 200 OK\r\n\r\n");
      inner.write(head);
      inner.pipe(client).pipe(inner);
    });
    for (const socket of [inner, client]) {
      tunnels.add(socket);
      socket.on("error", () => [inner, client].forEach((one) => one.destroy()));
      socket.on("close", () => tunnels.delete(socket));
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // A server that listens at a port has such an address
  const { port } = server.address() as AddressInfo;
  return {
    proxy: `http://127.0.0.1:${port}`,
    requests,
    cookiesAt: (host, path) =>
      requests.filter((one) => one.host === host && one.path === path).map(({ cookie }) => cookie),
    async close() {
      for (const socket of tunnels) socket.destroy();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
