import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { EMPTY_CONFIG, mayTellSecrets, readConfigCopy, scrubConfig } from "../../../lib/system/git/config_copy.ts";
import { gitTest } from "../../support/git_fixture.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

/** Returns the entries that git itself reads in a scrubbed configuration, such as `key=value`. */
function entriesOf(config: string): readonly string[] {
  const listed = execFileSync("git", ["config", "--file", "-", "--list", "-z"], {
    input: Buffer.from(scrubConfig(config), "latin1"),
    env: { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent", GIT_CONFIG_NOSYSTEM: "1" },
  });
  return listed.toString("latin1").split("\0").filter((entry) => entry !== "").map((entry) => entry.replace("\n", "="));
}

gitTest("a copy keeps what describes the repository, and git reads the same values in it", async () => {
  const config = `; a comment
# another
[core]
	repositoryformatversion = 0
	filemode = true ; until here
	bare
	autocrlf = "input"
[extensions]
	objectFormat = sha256
[user] name = Ada "B."  Lovelace\\
 again
	email = ada@example.com # hers
[remote "origin"]
	url = https://example.com/a/b.git
	fetch = +refs/heads/*:refs/remotes/origin/*
[branch "topic/#1 \\"x\\\\y\\""]
	remote = origin
	merge = refs/heads/topic/#1
	rebase = true
[submodule "lib/@scope/x"]
	url = git@example.com:x/y.git
	active = true
[init]
	defaultBranch = main
`;
  // A hash sign outside quotes begins a comment
  assert.deepEqual(entriesOf(config), [
    "core.repositoryformatversion=0",
    "core.filemode=true",
    "core.bare",
    "core.autocrlf=input",
    "extensions.objectformat=sha256",
    "user.name=Ada B.  Lovelace again",
    "user.email=ada@example.com",
    "remote.origin.url=https://example.com/a/b.git",
    "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*",
    'branch.topic/#1 "x\\y".remote=origin',
    'branch.topic/#1 "x\\y".merge=refs/heads/topic/',
    'branch.topic/#1 "x\\y".rebase=true',
    "submodule.lib/@scope/x.url=git@example.com:x/y.git",
    "submodule.lib/@scope/x.active=true",
    "init.defaultbranch=main",
  ]);
});

gitTest("bytes of a name that are no UTF-8 stay as they are", async () => {
  assert.deepEqual(entriesOf("[user]\n\tname = J\xf6rg\n"), ["user.name=J\xf6rg"]);
});

gitTest("a copy has no user information, query or fragment of a URL; what is no plain URL is left out", async () => {
  const urls: readonly (readonly [url: string, kept: string | undefined])[] = [
    ["https://example.com/a.git", "https://example.com/a.git"],
    ["https://ada:s3cret@example.com:8443/a.git", "https://example.com:8443/a.git"],
    ["https://s3cret@example.com/a.git", "https://example.com/a.git"],
    ["HTTPS://ada:s3cret@example.com/a.git", "HTTPS://example.com/a.git"],
    ["ssh://git@example.com/a.git", "ssh://git@example.com/a.git"],
    ["ssh://git:s3cret@example.com/a.git", "ssh://example.com/a.git"],
    ["git@example.com:a/b.git", "git@example.com:a/b.git"],
    ["ada@example.com:a/b.git", "example.com:a/b.git"],
    ["../other.git", "../other.git"],
    ["/srv/git/a.git", "/srv/git/a.git"],
    ["https://example.com/a.git?token=s3cret", undefined],
    ["https://example.com/a.git#s3cret", undefined],
    ["https://ada:s3c/ret@example.com/a.git", undefined],
    ["https://ada/s3cret@example.com/a.git", undefined],
    ["https://ada@x:s3cret@example.com/a.git", undefined],
    ["https://ada%3As3cret%40example.com/a.git", undefined],
    ["ada:s3cret@example.com:a/b.git", undefined],
    ["ada:s3cret@example.com", undefined],
    ["ext::sh -c s3cret", undefined],
    ["x::https://ada:s3cret@example.com", undefined],
    ["https://ada:s3cret@@example.com/a", undefined],
    ["https:\\\\ada:s3cret@example.com/a", undefined],
  ];
  for (const [url, kept] of urls) {
    const config = `[remote "a"]\n\turl = "${url.replaceAll("\\", "\\\\")}"\n`;
    assert.deepEqual(entriesOf(config), kept === undefined ? [] : [`remote.a.url=${kept}`], url);
    for (const key of ["remote.a.pushurl", "submodule.a.url"]) {
      const [section = "", , name = ""] = key.split(".");
      const text = scrubConfig(`[${section} "a"]\n\t${name} = "${url.replaceAll("\\", "\\\\")}"\n`);
      assert.doesNotMatch(text, /s3c/, `${key} ${url}`);
    }
  }
});

test("a copy has no key that names a program, a credential or another file", () => {
  const keys = [
    ...["core.fsmonitor", "core.hooksPath", "core.sshCommand", "core.pager", "core.editor", "core.askPass"],
    ...["core.gitProxy", "core.attributesFile", "core.excludesFile", "core.worktree", "core.alternateRefsCommand"],
    ...["filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.textconv", "diff.x.command", "diff.external"],
    ...["merge.x.driver", "mergetool.x.cmd", "credential.helper", "credential.x.username", "http.extraHeader"],
    ...["http.https://example.com/.extraHeader", "http.proxy", "http.cookieFile", "http.sslKey"],
    ...["url.https://ada:s3cret@example.com/.insteadOf"],
    ...["include.path", "includeIf.gitdir:x.path", "alias.x", "gpg.program", "gpg.ssh.program", "user.signingKey"],
    ...["protocol.ext.allow", "submodule.x.update", "remote.x.uploadpack", "remote.x.receivepack", "remote.x.proxy"],
    ...["remote.x.vcs", "pager.log", "sequence.editor", "sendemail.smtpPass", "imap.pass", "trailer.x.command"],
    ...["branch.x.description", "uploadpack.packObjectsHook", "web.browser", "guitool.x.cmd", "advice.token", "x.y"],
  ];
  const config = keys.map((key) => {
    const [section = "", ...rest] = key.split(".");
    const name = rest.pop();
    const head = rest.length === 0 ? `[${section}]` : `[${section} "${rest.join(".")}"]`;
    return `${head}\n\t${name} = s3cret\n`;
  }).join("");
  assert.equal(scrubConfig(config).trim(), "");
});

test("a credential in the place of another value is left out", () => {
  for (
    const line of [
      '[branch "a"] remote = https://ada:s3cret@example.com/x',
      '[branch "a"] pushRemote = https://s3cret@example.com/x',
      '[branch "a"] merge = https://s3cret@example.com',
      "[remote] pushDefault = https://ada:s3cret@example.com/x",
      '[remote "a"] fetch = https://s3cret@example.com',
      '[remote "https://ada:s3cret@example.com"] fetch = refs/heads/a',
      '[branch "https://s3cret@example.com"] rebase = true',
      "[core] autocrlf = https://ada:s3cret@example.com/x",
      "[user] name = https://ada:s3cret@example.com/x",
    ]
  ) {
    assert.doesNotMatch(scrubConfig(line), /s3cret/, line);
  }
});

test("a configuration that is not understood gives an empty one, never a part of it", () => {
  const good = "[user]\n\tname = Ada\n";
  for (
    const bad of [
      "[remote.origin]\n\turl = https://example.com\n",
      "[core\n",
      '[remote "a]\n',
      '[remote "a\nb"]\n',
      "[user]\n\tname # no value\n",
      "[user]\n\tname Ada\n",
      "[user]\n\t1name = Ada\n",
      '[user]\n\tname = "open\n',
      "[user]\n\tname = a\\x\n",
      "[user]\n\tname = a\\",
      "[user]\n\tname = a\0b\n",
      "[user]\n\tname = a\rb\n",
      "\ufeff[user]\n\tname = Ada\n",
      "[us er]\n\tname = Ada\n",
    ]
  ) {
    assert.equal(scrubConfig(good + bad), EMPTY_CONFIG, JSON.stringify(bad));
  }
  assert.equal(scrubConfig(`name = before any section\n${good}`), EMPTY_CONFIG);
});

test("a continued line, a comment and a quote cannot carry a dropped value into a kept key", () => {
  for (
    const config of [
      "[credential]\n\thelper = \\\n[user]\\\n\tname = s3cret\n",
      '[credential]\n\thelper = "x # y"\\\n name = s3cret\n',
      "[core]\n\teditor = a ; [user] name = s3cret\n",
      '[core]\n\teditor = "a\\"\\\n[user] name = s3cret"\n',
    ]
  ) {
    assert.doesNotMatch(scrubConfig(config), /s3cret/, config);
  }
});

test("a long configuration is read in time that grows with its length", () => {
  const lines = Array.from({ length: 5000 }, (_, i) => `[branch "b${i}"]\n\tremote = origin\n`).join("");
  const started = process.cpuUsage();
  assert.match(scrubConfig(lines), /b4999/);
  scrubConfig(`[user]\n\tname = ${"\\\n".repeat(60_000)}`);
  scrubConfig(`[user]\n\tname = ${" ".repeat(200_000)}x`);
  scrubConfig(`[remote "a"]\n\turl = ${"a".repeat(200_000)}`);
  assert.ok(process.cpuUsage(started).user < 2_000_000);
});

test("a copy is made of a regular file of its own place alone", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "config");
    writeFileSync(path, "[user]\n\tname = Ada\n");
    const copy = await readConfigCopy(path);
    assert.equal(Buffer.from(copy ?? []).toString(), '[user]\n\tname = "Ada"\n');
    symlinkSync("config", join(folder, "link"));
    mkdirSync(join(folder, "folder"));
    symlinkSync(".", join(folder, "round"));
    for (const name of ["link", "folder", "none", "round/config"]) {
      assert.equal(await readConfigCopy(join(folder, name)), undefined, name);
    }
    writeFileSync(path, `[user]\n\tname = Ada\n${"# x\n".repeat(300_000)}`);
    assert.equal(Buffer.from(await readConfigCopy(path) ?? []).toString(), EMPTY_CONFIG);
    assert.ok(readFileSync(path, "utf8").startsWith("[user]"));
  }));

const PLAIN = `[core]
	repositoryformatversion = 0
	filemode = true
	hooksPath = .husky/_
	worktree = ../../../lib
[Remote "origin"]
	url = https://example.com/a/b.git
	fetch = "+refs/heads/*:refs/remotes/origin/*"
	gh-resolved = base
[branch "topic/a"]
	remote=origin
	merge = refs/heads/topic/a
	vscode-merge-base = origin/main
	github-pr-owner-number = "owner#name#12"
[user]
	name = Ada \\
 Lovelace
	signingKey = ABCDEF0123456789
`;

test("a configuration that git and the tools of people write tells no secret", () => {
  for (const text of ["", "\n", EMPTY_CONFIG, PLAIN, PLAIN.replaceAll("\n", "\r\n")]) {
    assert.equal(mayTellSecrets(text), false, text);
  }
});

test("what a copy leaves out may be a secret: keys, parts of URLs, comments, names of sections, and what is not understood", () => {
  for (
    const more of [
      "[http]\n\textraHeader = Authorization: Basic x\n",
      '[remote "other"]\n\turl = https://ada:s3cret@example.com/a.git\n',
      '[remote "other"]\n\turl = https://example.com/a.git?token=s3cret\n',
      '[remote "other"]\n\tproxy = http://ada:s3cret@example.com\n',
      "[credential]\n\thelper = store\n",
      "[core]\n\tsshCommand = sshpass -p s3cret ssh\n",
      "[core]\n\thooksPath = s3cret words\n",
      '[branch "https://ada:s3cret@example.com"]\n\tvscode-merge-base = main\n',
      "# s3cret\n",
      "[fetch]\n\tprune = true ; s3cret\n",
      '[url "https://s3cret@example.com/"]\n',
      "[core\n",
      "[unknown]\n\tkey = s3cret\n",
    ]
  ) {
    assert.equal(mayTellSecrets(PLAIN + more), true, more);
  }
});
