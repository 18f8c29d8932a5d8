/**
 * Paths that no tool may touch at any level (docs/design/policy.md "Autonomy"); `~/` is the user's home folder. The configuration adds
 * them to the user's own, and the checks of paths hold them whatever the configuration says.
 */
export const BUILT_IN_FORBIDDEN_PATHS = ["/etc", "/root", "/proc", "/sys", "~/.ssh", "~/.gnupg", "~/.aws"] as const;
