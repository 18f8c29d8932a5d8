/** Programs whose arguments are a program: to allow one is to allow every command. */
const LAUNCHERS: readonly string[] = [
  ...["sh", "ash", "bash", "dash", "zsh", "ksh", "fish", "busybox", "toybox", "pwsh"],
  ...["node", "deno", "bun", "python", "ruby", "perl", "php", "lua", "luajit", "tclsh", "Rscript", "osascript"],
  ...["awk", "gawk", "mawk", "nawk", "sed", "gdb", "m4", "expect"],
  ...["vi", "vim", "nvim", "ex", "emacs", "ed", "less", "more", "man"],
  ...[
    "env",
    "xargs",
    "find",
    "fd",
    "parallel",
    "nohup",
    "setsid",
    "timeout",
    "nice",
    "ionice",
    "time",
    "watch",
    "stdbuf",
  ],
  ...["script", "strace", "ltrace", "unshare", "nsenter", "chroot", "setpriv", "flock", "systemd-run", "at", "batch"],
  ...["sudo", "doas", "su", "ssh", "docker", "podman", "kubectl", "tmux", "screen"],
  ...["git", "make", "cmake", "ninja", "npm", "npx", "pnpm", "yarn", "pip", "uv", "uvx", "pipx", "cargo", "go", "java"],
  ...["tar", "zip", "rsync", "gcc", "cc", "ld"],
];
const KNOWN = new Set(LAUNCHERS);

/** Those of the allowed commands that can run any other program; a version at the end of the name counts not: `python3.13`. */
export function launchersIn(allowed: readonly string[]): readonly string[] {
  return allowed.filter((name) => KNOWN.has(name) || KNOWN.has(name.replace(/-?[\d.]+$/, "")));
}

/** Launchers of which the first argument says what they do: a script, or a task of the project. */
const BY_FIRST_ARGUMENT = new Set([
  ...["sh", "ash", "bash", "dash", "zsh", "ksh", "fish", "pwsh"],
  ...["node", "deno", "bun", "python", "ruby", "perl", "php", "lua", "luajit", "tclsh", "Rscript"],
  ...["make", "ninja", "npm", "npx", "pnpm", "yarn", "uv", "uvx", "pipx", "cargo", "go"],
]);

/**
 * Tells whether a rule for a command with its first argument says something. It does not where that argument is an option, nor for
 * a program that takes any other program further on, as `env`, `find` or `timeout`.
 */
export function decidesByFirstArgument(name: string, first: string): boolean {
  if (first.startsWith("-")) return false;
  return launchersIn([name]).length === 0 || BY_FIRST_ARGUMENT.has(name) ||
    BY_FIRST_ARGUMENT.has(name.replace(/-?[\d.]+$/, ""));
}
