import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type FileTree, writeTree } from "../../support/file_tree.ts";
import { git, initBareRepository } from "../../support/git_fixture.ts";
import { removeFolder } from "../../support/remove_folder.ts";

/** A repository that git reaches over HTTP on 127.0.0.1. */
export interface GitServer {
  /** `http://127.0.0.1:<port>/repository.git` */
  readonly url: string;
  /** The bare repository itself */
  readonly folder: string;
  /** Requests so far, such as `GET /repository.git/info/refs?...`, with the Authorization header behind a blank where there is one */
  readonly requests: readonly string[];
  /** Puts a repository's branch `main` there, without HTTP */
  push(from: string): void;
  /** Adds a commit to `main`, as made elsewhere */
  commit(files: Readonly<Record<string, string>>): void;
}

export interface GitServerOptions {
  /** The bare repository. Default: an empty one */
  readonly repository?: FileTree;
  /** `user:password` that every request needs */
  readonly credentials?: string;
  /** Answers each request with a redirect to there */
  readonly redirectTo?: string;
  /** Serves HTTPS with this key and certificate, in PEM */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Never answers */
  readonly silent?: boolean;
}

/** Runs `use` with a server, which is closed afterwards. */
export async function withGitServer(
  use: (server: GitServer) => Promise<void>,
  options: GitServerOptions = {},
): Promise<void> {
  const parent = mkdtempSync(join(tmpdir(), "postern-git-"));
  const folder = join(parent, "repository.git");
  if (options.repository === undefined) initBareRepository(folder);
  else writeTree(folder, options.repository);
  const requests: string[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const { authorization } = request.headers;
    requests.push(`${request.method} ${request.url}${authorization === undefined ? "" : ` ${authorization}`}`);
    const expected = `Basic ${Buffer.from(options.credentials ?? "").toString("base64")}`;
    if (options.silent === true) return;
    if (options.redirectTo !== undefined) {
      response.writeHead(302, { location: `${options.redirectTo}${request.url}` }).end();
    } else if (options.credentials !== undefined && authorization !== expected) {
      response.writeHead(401, { "www-authenticate": 'Basic realm="test"' }).end();
    } else {
      const { status, headers, body } = await backend(request, parent);
      response.writeHead(status, headers).end(body);
    }
  };
  const server = options.tls === undefined ? createServer(answer) : createTlsServer(options.tls, answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  // A TCP server has an address of this shape
  const { port } = server.address() as AddressInfo;
  try {
    await use({
      url: `http${options.tls === undefined ? "" : "s"}://127.0.0.1:${port}/repository.git`,
      folder,
      requests,
      push: (from) => void git(from, "push", "-q", folder, "main"),
      commit(files) {
        const clone = mkdtempSync(join(parent, "clone-"));
        git(parent, "clone", "-q", folder, clone);
        for (const [name, content] of Object.entries(files)) writeFileSync(join(clone, name), content);
        git(clone, "add", "-A", "-f");
        git(clone, "-c", "user.name=Bob", "-c", "user.email=b@example.com", "commit", "-q", "-m", "from elsewhere");
        git(clone, "push", "-q", "origin", "main");
      },
    });
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await removeFolder(parent);
  }
}

/** `git http-backend` as a CGI program. */
async function backend(request: IncomingMessage, root: string) {
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://server.test");
  const child = spawn("git", ["http-backend"], {
    env: {
      PATH: process.env["PATH"] ?? "",
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: "1",
      GIT_CONFIG_NOSYSTEM: "1",
      GIT_CONFIG_GLOBAL: "/dev/null",
      PATH_INFO: pathname,
      QUERY_STRING: searchParams.toString(),
      REQUEST_METHOD: request.method ?? "GET",
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      HTTP_CONTENT_ENCODING: String(request.headers["content-encoding"] ?? ""),
      GIT_PROTOCOL: String(request.headers["git-protocol"] ?? ""),
      REMOTE_ADDR: "127.0.0.1",
      REMOTE_USER: "test",
    },
    stdio: ["pipe", "pipe", "ignore"],
  });
  // It may answer without reading what was sent
  child.stdin.on("error", () => {});
  const sent: Uint8Array[] = [];
  for await (const chunk of request) sent.push(chunk);
  child.stdin.end(Buffer.concat(sent));
  const chunks: Uint8Array[] = [];
  for await (const chunk of child.stdout) chunks.push(chunk);
  const output = Buffer.concat(chunks);
  const split = output.indexOf("\r\n\r\n");
  const headers = Object.fromEntries(
    output.subarray(0, split).toString().split("\r\n").map((line) => line.split(/: (.*)/s).slice(0, 2)),
  );
  const { Status: status = "200", ...rest } = headers as Record<string, string>;
  return { status: Number.parseInt(status), headers: rest, body: output.subarray(split + 4) };
}
