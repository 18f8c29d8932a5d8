import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CancelError } from "../../../lib/base/cancel.ts";
import { git, gitTest as test } from "../../support/git_fixture.ts";
import { withGitServer } from "./git_server.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import type { ConfigChanges } from "../../support/tool_bench.ts";
import { GIT_ON, withRepository } from "./with_repository.ts";
import { until } from "../../support/until.ts";

const LOOPBACK: ConfigChanges = { ...GIT_ON, url_access: { allow_loopback: true } };

test("pulls and pushes over HTTP, and merges what has parted", () =>
  withGitServer((server) =>
    withRepository({ "a.txt": "one\n" }, async ({ root, ok, refused, path, write }) => {
      git(root, "remote", "add", "origin", server.url);
      assert.match(await ok({ op: "push" }), /^To http:.*\n\*\trefs\/heads\/main:refs\/heads\/main/);
      assert.match(await ok({ op: "pull" }), /^Already up to date\.\n## main/);
      server.commit({ "b.txt": "from afar\n" });
      assert.match(await ok({ op: "pull" }), /^Updating .*\nFast-forward\n/);
      assert.equal(readFileSync(path("b.txt"), "utf8"), "from afar\n");
      server.commit({ "c.txt": "c\n" });
      write("d.txt", "d\n");
      await ok({ op: "add", paths: ["d.txt"] });
      await ok({ op: "commit", message: "here" });
      assert.match(await refused({ op: "push" }), /rejected/);
      assert.match(await ok({ op: "pull", remote: "origin", branch: "main" }), /c\.txt/);
      assert.match(await ok({ op: "log", limit: 1 }), /Merge remote-tracking branch '.*origin\/main'/);
      await ok({ op: "push" });
      server.commit({ "a.txt": "theirs\n" });
      write("a.txt", "ours\n");
      await ok({ op: "commit", message: "ours", paths: ["a.txt"] });
      assert.match(await refused({ op: "pull" }), /CONFLICT \(content\): Merge conflict in a\.txt/);
      assert.match(await ok({ op: "status" }), /^UU a\.txt$/m);
      write("a.txt", "both\n");
      await ok({ op: "add", paths: ["a.txt"] });
      await ok({ op: "commit", message: "both" });
      await ok({ op: "push" });
      assert.equal(git(server.folder, "rev-parse", "main"), git(root, "rev-parse", "HEAD"));
      assert.match(await ok({ op: "branch" }), /^remote origin http:\/\/127\.0\.0\.1:\d+\/repository\.git$/m);
    }, { config: { ...LOOPBACK, shell: { sandbox: "auto" } } })
  ));

test("files that a pull brought are outside content", () =>
  withGitServer((server) =>
    withRepository({ "a.txt": "one\n" }, async ({ root, ok, bench }) => {
      server.push(root);
      git(root, "remote", "add", "origin", server.url);
      server.commit({ "b.txt": "from afar\n" });
      await ok({ op: "pull" });
      const taintOf = async (path: string) => (await bench.call("read_file", { path })).taint;
      assert.deepEqual(await taintOf("b.txt"), ["git_operations"]);
    }, { config: LOOPBACK })
  ));

test("the first pull fills an empty repository", () =>
  withGitServer((server) =>
    withRepository({}, async ({ root, ok, path }) => {
      git(root, "commit", "-q", "--allow-empty", "-m", "other");
      server.push(root);
      server.commit({ "b.txt": "from afar\n" });
      rmSync(path(".git"), { recursive: true });
      git(root, "init", "-q", "-b", "main");
      git(root, "remote", "add", "origin", server.url);
      assert.match(await ok({ op: "status" }), /No commits yet/);
      assert.match(await ok({ op: "branch" }), /^on branch main\nremote origin/);
      await ok({ op: "pull" });
      assert.equal(readFileSync(path("b.txt"), "utf8"), "from afar\n");
    }, { config: LOOPBACK })
  ));

test("a branch of the remote can be checked out, and is followed", () =>
  withGitServer((server) =>
    withRepository({ "a.txt": "one\n" }, async ({ root, ok, refused }) => {
      server.push(root);
      git(server.folder, "branch", "topic/x", "main");
      git(root, "remote", "add", "origin", server.url);
      assert.match(await refused({ op: "checkout", branch: "topic/x" }), /there is none; give "rev"/);
      await ok({ op: "pull", branch: "topic/x" });
      assert.equal(await ok({ op: "checkout", branch: "topic/x" }), "## topic/x...origin/topic/x");
      assert.match(await ok({ op: "pull" }), /up to date/);
      git(root, "config", "branch.topic/x.merge", "refs/heads/main:refs/heads/evil");
      assert.match(await ok({ op: "pull" }), /up to date/);
      assert.equal(git(root, "branch", "--list", "evil"), "");
    }, { config: LOOPBACK })
  ));

test("remotes that are no plain http or https URL are refused, and nothing is run", () =>
  withRepository({ "a.txt": "one\n" }, async ({ root, refused, outside }) => {
    git(root, "config", "protocol.allow", "always");
    git(root, "config", "protocol.ext.allow", "always");
    const remotes = [
      ...[`ext::sh -c "touch% ${outside}/ran"`, "ext::touch x", "fd::7", "file:///etc", `file://${outside}`, outside],
      ...[
        "../outside",
        ".",
        "ssh://example.com/x.git",
        "git@example.com:x.git",
        "example.com:x",
        "git://example.com/x",
      ],
      ...[
        "ftp://example.com/x",
        "https::https://example.com/x",
        "http+unix://x",
        "https:example.com",
        "https:/example.com",
      ],
      ...[
        "https://example.com\\@127.0.0.1/x",
        "https://a@b@example.com/",
        "https://example.com /x",
        "https://example.com./x",
      ],
      ...[
        "https://exa%6dple.com/",
        "https://example.com:99999999/",
        "https://-oProxyCommand=x/",
        "",
        " https://example.com/",
      ],
      ...["https://example.com/x\ty", "HTTPS:\\\\example.com"],
    ];
    for (const [at, url] of remotes.entries()) {
      git(root, "config", "remote.origin.url", url);
      const op = at % 2 === 0 ? "push" : "pull";
      assert.match(await refused({ op }), /only plain http and https|remotes are/, url);
    }
    assert.equal(existsSync(`${outside}/ran`), false);
    assert.match(await refused({ op: "pull", remote: "other" }), /"other": the remotes are "origin"/);
    git(root, "config", "remote.origin.url", "https://example.com/x");
    git(root, "config", "--add", "remote.origin.url", "ext::sh");
    assert.match(await refused({ op: "pull" }), /it has 2 URLs/);
    git(root, "config", "--unset-all", "remote.origin.url");
    git(root, "config", "remote.origin.url", "https://example.com/x");
    git(root, "config", "remote.origin.pushurl", "ext::sh");
    assert.match(await refused({ op: "push" }), /only plain http and https/);
  }));

test("the URL policy decides about remotes", () =>
  withGitServer((server) =>
    withRepository({ "a.txt": "one\n" }, async ({ root, bench, refused }) => {
      git(root, "remote", "add", "origin", server.url);
      const cases: readonly (readonly [string, ConfigChanges["url_access"], RegExp])[] = [
        [server.url, {}, /is this machine; \[url_access\] allow_loopback = true/],
        ["http://10.0.0.1/x", { allow_loopback: true }, /private or reserved/],
        ["http://169.254.169.254/latest", { allow_loopback: true }, /private or reserved/],
        ["http://0x7f000001/x", {}, /is this machine/],
        ["http://[::ffff:127.0.0.1]/x", { allow_loopback: true }, /private or reserved/],
        [server.url, { allow_loopback: true, domain_blocklist: ["127.0.0.1"] }, /domain_blocklist/],
        [server.url, { allow_loopback: true, enforce_domain_allowlist: true }, /domain_allowlist/],
      ];
      for (const [url, url_access = {}, reason] of cases) {
        git(root, "config", "remote.origin.url", url);
        bench.configure({ ...GIT_ON, url_access });
        for (const op of ["push", "pull"]) assert.match(await refused({ op }), reason, url);
      }
      assert.deepEqual(server.requests, []);
    })
  ));

test("a redirect is refused with the address that it leads to, and nothing asks there", () =>
  withGitServer((target) =>
    withGitServer((server) =>
      withRepository({ "a.txt": "one\n" }, async ({ root, refused, bench }) => {
        git(root, "remote", "add", "origin", server.url);
        for (const [op, sandbox] of [["push", "off"], ["pull", "off"], ["push", "auto"], ["pull", "auto"]] as const) {
          bench.configure({ ...LOOPBACK, shell: { sandbox } });
          const output = await refused({ op });
          assert.ok(
            output.includes(`Cannot reach the remote "origin" at "${server.url}": it redirects to "${target.url}`),
            output,
          );
          assert.match(output, /git remote set-url/);
        }
        assert.ok(server.requests.length > 0);
        assert.deepEqual(target.requests, []);
      }, { config: LOOPBACK }), { redirectTo: target.url.replace("/repository.git", "") })
  ));

test("of a redirect's address credentials, queries and what is no plain URL are not shown", async () => {
  const cases = [
    ["http://ada:s3cret@127.0.0.1:9/x.git", /redirects to "http:\/\/127\.0\.0\.1:9\/x\.git\/repository\.git";/],
    ["http://127.0.0.1:9/x.git?token=s3cret&y=", /redirects to "http:\/\/127\.0\.0\.1:9\/x\.git";/],
    ["file:///etc/s3cret", /redirects to an address that is no http or https URL/],
    [`http://127.0.0.1:9/${"s3cret".repeat(2000)}`, /redirects to /],
  ] as const;
  for (const [redirectTo, expected] of cases) {
    await withGitServer((server) =>
      withRepository({ "a.txt": "one\n" }, async ({ root, refused }) => {
        git(root, "remote", "add", "origin", server.url);
        const output = await refused({ op: "pull" });
        assert.match(output, expected);
        assert.ok(output.length < 1000);
        if (redirectTo.length < 1000) assert.doesNotMatch(output, /s3cret/);
      }, { config: LOOPBACK }), { redirectTo });
  }
});

test("git connects to the addresses that were checked, whatever the name says a moment later", () =>
  withGitServer((server) =>
    withRepository({ "a.txt": "one\n" }, async ({ root, ok, refused }) => {
      const { port } = new URL(server.url);
      // Nobody else knows this name: without the address that was checked git could not reach it
      git(root, "remote", "add", "origin", `http://rebound.test:${port}/repository.git`);
      await ok({ op: "push" });
      assert.ok(server.requests.length > 0);
      git(root, "remote", "add", "other", `http://unknown.test:${port}/repository.git`);
      assert.match(await refused({ op: "push", remote: "other" }), /could not be looked up/);
    }, {
      config: LOOPBACK,
      lookup: (host) => Promise.resolve(host === "rebound.test" ? ["127.0.0.1"] : []),
    })
  ));

const CREDENTIALS = "user:hunter2hunter2";

test("without [security.git] credentials no stored ones are used, and none are asked for", () =>
  withTemporaryFolder((home) =>
    withGitServer((server) =>
      withRepository({ "a.txt": "one\n" }, async ({ root, refused, outside }) => {
        const url = new URL(server.url);
        writeFileSync(join(home, ".gitconfig"), "[credential]\nhelper = store\n");
        writeFileSync(join(home, ".git-credentials"), `http://${CREDENTIALS}@${url.host}\n`);
        writeFileSync(join(home, ".netrc"), `machine 127.0.0.1 login user password hunter2hunter2\n`);
        git(root, "config", "credential.helper", `!touch ${outside}/ran; echo password=x`);
        git(root, "remote", "add", "origin", server.url);
        for (const op of ["push", "pull"]) {
          assert.match(await refused({ op }), /could not read Username|Authentication failed/);
        }
        assert.deepEqual(
          server.requests.filter((request) => request.includes("Basic")),
          [],
        );
        git(root, "config", "remote.origin.url", server.url.replace("//", `//${CREDENTIALS}@`));
        const output = await refused({ op: "pull" });
        assert.match(output, /has a user or password in it; .*credentials = true/);
        assert.doesNotMatch(output, /hunter2/);
        assert.equal(existsSync(`${outside}/ran`), false);
      }, { config: LOOPBACK, home }), { credentials: CREDENTIALS })
  ));

test("with [security.git] credentials the user's helper is asked, the repository's never", () =>
  withTemporaryFolder((home) =>
    withGitServer((server) =>
      withRepository({ "a.txt": "one\n" }, async ({ root, ok, refused, bench, outside }) => {
        const { host } = new URL(server.url);
        writeFileSync(join(home, ".gitconfig"), "[credential]\nhelper = store\n");
        writeFileSync(join(home, ".git-credentials"), `http://${CREDENTIALS}@${host}\n`);
        const evil = `!touch ${outside}/ran; echo password=x`;
        git(root, "config", "credential.helper", evil);
        git(root, "config", `credential.http://${host}.helper`, evil);
        git(root, "config", "core.askPass", `${outside}/run`);
        git(root, "remote", "add", "origin", server.url);
        const config = { ...LOOPBACK, git: { credentials: true } };
        bench.configure(config);
        await ok({ op: "push" });
        assert.ok(server.requests.some((request) => request.includes("Basic")));
        assert.equal(existsSync(`${outside}/ran`), false);
        for (const sandbox of ["auto", "off"] as const) {
          const before = server.requests.length;
          bench.configure({ ...config, shell: { sandbox } });
          await ok({ op: "pull" });
          assert.ok(server.requests.slice(before).some((request) => request.includes("Basic")), sandbox);
        }
        // In the URL: used, and masked wherever it is shown
        writeFileSync(join(home, ".git-credentials"), "");
        git(root, "config", "remote.origin.url", server.url.replace("//", `//${CREDENTIALS}@`));
        bench.configure(config);
        assert.doesNotMatch(await ok({ op: "pull" }), /hunter2/);
        assert.match(await ok({ op: "branch" }), /remote origin http:\/\/\*\*\*@127/);
        git(root, "config", "remote.origin.url", server.url.replace("//", "//user:wrong-hunter2@"));
        assert.doesNotMatch(await refused({ op: "push" }), /hunter2/);
      }, { config: LOOPBACK, home }), { credentials: CREDENTIALS })
  ));

test("a pull that would overwrite a sensitive file is refused", () =>
  withGitServer((server) =>
    withRepository({ ".env": "TOKEN=mine\n" }, async ({ root, refused, path }) => {
      server.push(root);
      git(root, "remote", "add", "origin", server.url);
      server.commit({ ".env": "TOKEN=theirs\n" });
      assert.match(await refused({ op: "pull" }), /would overwrite "\.env"/);
      assert.equal(readFileSync(path(".env"), "utf8"), "TOKEN=mine\n");
    }, { config: LOOPBACK })
  ));

test("a remote that never answers ends with the call's signal", () =>
  withGitServer((server) =>
    withRepository({ "a.txt": "one\n" }, async ({ root, bench, path }) => {
      git(root, "remote", "add", "origin", server.url);
      const controller = new AbortController();
      const pulling = bench.call("git_operations", { op: "pull" }, { signal: controller.signal });
      await until(() => server.requests.length > 0);
      controller.abort(new CancelError("client_gone"));
      await assert.rejects(pulling, CancelError);
      assert.equal(existsSync(path(".git/index.lock")), false);
    }, { config: LOOPBACK }), { silent: true }));

test(
  "a certificate nobody vouches for ends the call before anything is sent",
  () =>
    withTemporaryFolder(async (folder) => {
      const [key, cert] = [join(folder, "key"), join(folder, "cert")];
      const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
      const keyType = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
      const args = ["req", "-x509", ...keyType, "-days", "2", ...subject, "-keyout", key, "-out", cert];
      execFileSync("openssl", args, { stdio: "ignore" });
      await withGitServer((server) =>
        withRepository({ "a.txt": "one\n" }, async ({ root, refused, bench }) => {
          git(root, "remote", "add", "origin", server.url);
          for (const sandbox of ["off", "auto"] as const) {
            bench.configure({ ...LOOPBACK, shell: { sandbox } });
            for (const op of ["push", "pull"]) assert.match(await refused({ op }), /certificate/i);
          }
          git(root, "config", "http.sslVerify", "false");
          assert.match(await refused({ op: "pull" }), /has the key "http\.sslverify"/);
          assert.deepEqual(server.requests, []);
        }), { tls: { key: readFileSync(key, "utf8"), cert: readFileSync(cert, "utf8") } });
    }),
  ["openssl"],
);
