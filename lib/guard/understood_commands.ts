import { withoutEnd } from "../base/text.ts";
import { isTameBuiltin } from "../system/process/placed_parts.ts";

/** Programs whose arguments are a program: to allow one is to allow every command. */
const LAUNCHERS: readonly string[] = [
  ...["sh", "ash", "bash", "dash", "zsh", "ksh", "fish", "busybox", "toybox", "pwsh"],
  ...["node", "deno", "bun", "python", "ruby", "perl", "php", "lua", "luajit", "tclsh", "Rscript", "osascript"],
  ...["awk", "gawk", "mawk", "nawk", "sed", "gdb", "m4", "expect"],
  ...["vi", "vim", "nvim", "ex", "emacs", "ed", "less", "more", "man"],
  ...["env", "xargs", "find", "fd", "parallel", "nohup", "setsid", "timeout", "nice", "ionice", "time", "watch"],
  ...["script", "strace", "ltrace", "unshare", "nsenter", "chroot", "setpriv", "flock", "systemd-run", "at", "batch"],
  ...["stdbuf", "firejail"],
  ...["sudo", "doas", "su", "ssh", "docker", "podman", "kubectl", "tmux", "screen"],
  ...["git", "make", "cmake", "ninja", "npm", "npx", "pnpm", "yarn", "pip", "uv", "uvx", "pipx", "cargo", "go", "java"],
  ...["tar", "zip", "rsync", "gcc", "cc", "ld"],
  ...["bunx", "pnpx", "corepack", "tsx", "ts-node", "poetry", "pipenv", "pdm", "hatch", "rye", "pixi", "tox", "nox"],
  ...["conda", "mamba", "micromamba", "nix", "nix-shell", "guix", "direnv", "mise", "asdf", "pyenv", "rbenv", "bundle"],
  ...["just", "task", "rake", "mvn", "gradle", "bazel", "meson", "entr", "hyperfine", "rlwrap", "unbuffer", "xvfb-run"],
  ...["taskset", "chrt", "numactl", "setarch", "prlimit", "cpulimit", "runuser", "pkexec", "capsh", "bwrap"],
  ...["proot", "fakeroot", "faketime", "valgrind", "perf", "gdbserver", "dbus-run-session", "crontab", "gmake"],
];
const KNOWN = new Set(LAUNCHERS);

/** Returns the allowed commands that can run any other program. A version at the end of the name is ignored: `python3.13`. */
export function launchersIn(allowed: readonly string[]): readonly string[] {
  return allowed.filter((name) => KNOWN.has(name) || KNOWN.has(plainName(name)));
}

/** Returns the name of a program without the version at its end, such as `python` of `python3.13`. */
function plainName(name: string): string {
  const plain = withoutEnd(name, "0123456789.");
  return plain !== name && plain.endsWith("-") ? plain.slice(0, -1) : plain;
}

/** Programs that run a script, which gets all arguments after it. */
const INTERPRETERS = new Set([
  ...["sh", "ash", "bash", "dash", "zsh", "ksh", "fish", "pwsh"],
  ...["node", "python", "ruby", "perl", "php", "lua", "luajit", "tclsh", "Rscript"],
]);
/** Words in the place of a script that are none, and texts that somebody writes while the command runs. */
const NO_SCRIPT = /^(?:-|inspect$|\/dev\/|\/proc\/)/;

/** Programs that run no other one, whatever their arguments are. */
const PLAIN = new Set([
  ...["ls", "pwd", "echo", "printf", "cat", "tac", "head", "tail", "wc", "uniq", "cut", "tr", "nl", "rev", "paste"],
  ...["comm"],
  ...["join", "fold", "fmt", "column", "seq", "sleep", "true", "false", "test", "date", "cal", "whoami", "id"],
  ...["uname", "which"],
  ...["basename", "dirname", "realpath", "readlink", "stat", "file", "du", "df", "tree", "cmp", "diff", "grep"],
  ...["egrep", "fgrep"],
  ...["jq", "strings", "od", "xxd", "hexdump", "base32", "base64", "sum", "cksum", "md5sum", "sha1sum", "sha256sum"],
  ...["sha512sum"],
  ...["mkdir", "rmdir", "touch", "rm", "cp", "mv", "ln", "chmod"],
]);

/** Tells whether a program is known to run no other one, whatever its arguments are. */
export function runsNoOther(name: string): boolean {
  return PLAIN.has(name);
}

/** First arguments of programs that name a task of the project. Their own options can name any program, such as `--script-shell` of npm. */
const TASKS = new Map<string, ReadonlySet<string> | "any">([
  ["npm", new Set(["test", "start", "run", "run-script"])],
  ["pnpm", new Set(["test", "start", "run"])],
  ["yarn", new Set(["test", "start"])],
  ["bun", new Set(["test"])],
  ["deno", new Set(["fmt", "lint", "check"])],
  ["cargo", new Set(["build", "check", "test", "bench", "doc"])],
  ["go", new Set(["build", "test", "vet"])],
  ["make", "any"],
  ["ninja", "any"],
]);
/** Programs that pass on what follows `--` to the task. */
const PASSING = new Set(["npm", "cargo"]);

/** Tells whether a program runs tasks of a project: a rule for it says nothing of calls with its options. */
export function isTaskRunner(name: string): boolean {
  return TASKS.has(name);
}

/**
 * Tells whether the arguments of a command are understood, so that a rule for it with its first argument says something: a script that gets
 * the rest, a program that runs no other, or a task of the project without options. Any other command may run any program further on.
 * @param words the program and its arguments
 */
export function isUnderstood([name = "", first = "", ...rest]: readonly string[]): boolean {
  const plain = plainName(name);
  if (INTERPRETERS.has(plain)) return !NO_SCRIPT.test(first);
  if (PLAIN.has(name)) return !first.startsWith("-");
  const tasks = TASKS.get(name);
  if (tasks === undefined || (tasks !== "any" && !tasks.has(first))) return false;
  const end = PASSING.has(name) ? rest.indexOf("--") : -1;
  const own = [first, ...rest.slice(0, end === -1 ? undefined : end)];
  // `make SHELL=...` sets what runs each line
  return !own.some((word) => word.startsWith("-") || word.includes("="));
}

/**
 * Tells whether a command needs no right of its own beside those of the other commands of its line: a builtin that runs no program. A `cd`
 * needs one where its folder decides what another command runs.
 */
export function isFreeBeside([name = ""]: readonly string[], commands: readonly (readonly string[])[]): boolean {
  return isTameBuiltin(name) && !(name === "cd" && commands.some(isByFolder));
}

/** Tells whether the folder decides which program or script a command is: by a relative path, a script or a task of the project. */
function isByFolder([name = ""]: readonly string[]): boolean {
  const isRelative = name.includes("/") && !name.startsWith("/");
  return isRelative || isTaskRunner(name) || INTERPRETERS.has(plainName(name));
}
