import type { Command } from "./command.ts";

/** Row of the table of verbs: the line in the help, and the way to load the command. */
export interface Verb {
  readonly summary: string;
  readonly load: () => Promise<Command>;
}

// Each command has argument types of its own; the table needs the general type only
const verb = (summary: string, load: () => Promise<unknown>): Verb => ({
  summary,
  load: load as () => Promise<Command>,
});

/** Table of all verbs, in the order of the help. A command's file is loaded when the verb is used. */
export const VERBS: Readonly<Record<string, Verb>> = {
  gateway: verb("Run the gateway in this terminal", async () => (await import("./commands/gateway.ts")).gatewayCommand),
  "daemon start": verb(
    "Run the gateway in the background",
    async () => (await import("./commands/daemon.ts")).daemonStartCommand,
  ),
  "daemon status": verb(
    "Say whether the daemon runs, where, and since when",
    async () => (await import("./commands/daemon.ts")).daemonStatusCommand,
  ),
  "daemon stop": verb(
    "Let the daemon finish its work, and stop it",
    async () => (await import("./commands/daemon.ts")).daemonStopCommand,
  ),
  "service install": verb(
    "Install the gateway as a service of this system",
    async () => (await import("./commands/service.ts")).serviceInstallCommand,
  ),
  "service start": verb(
    "Start the service",
    async () => (await import("./commands/service.ts")).serviceStartCommand,
  ),
  "service status": verb(
    "Say whether the service runs, and whether its port answers",
    async () => (await import("./commands/service.ts")).serviceStatusCommand,
  ),
  "service restart": verb(
    "Stop the service and start it again",
    async () => (await import("./commands/service.ts")).serviceRestartCommand,
  ),
  "service stop": verb("Stop the service", async () => (await import("./commands/service.ts")).serviceStopCommand),
  "service uninstall": verb(
    "Stop the service and remove it; records and configuration stay",
    async () => (await import("./commands/service.ts")).serviceUninstallCommand,
  ),
  chat: verb("Chat with the agent", async () => (await import("./commands/chat.ts")).chatCommand),
  pair: verb("Print a new pairing code", async () => (await import("./commands/token.ts")).pairCommand),
  "token list": verb("List tokens", async () => (await import("./commands/token.ts")).tokenListCommand),
  "token create": verb("Make a token", async () => (await import("./commands/token.ts")).tokenCreateCommand),
  "token revoke": verb(
    "Revoke one token, or all",
    async () => (await import("./commands/token.ts")).tokenRevokeCommand,
  ),
  "tools list": verb(
    "List tools and why each is on or off",
    async () => (await import("./commands/tools.ts")).toolsListCommand,
  ),
  "tools info": verb("Describe one tool", async () => (await import("./commands/tools.ts")).toolsInfoCommand),
  "tools schema": verb(
    "Print a tool's input schema",
    async () => (await import("./commands/tools.ts")).toolsSchemaCommand,
  ),
  "tools call": verb("Call a tool", async () => (await import("./commands/tools.ts")).toolsCallCommand),
  "mcp list": verb(
    "List MCP servers, and why each is off or failed",
    async () => (await import("./commands/mcp/list.ts")).mcpListCommand,
  ),
  "mcp show": verb(
    "Show one MCP server with its tools",
    async () => (await import("./commands/mcp/list.ts")).mcpShowCommand,
  ),
  "mcp enable": verb(
    "Let an MCP server run that was turned off",
    async () => (await import("./commands/mcp/list.ts")).mcpEnableCommand,
  ),
  "mcp disable": verb(
    "End an MCP server, and keep it from being started",
    async () => (await import("./commands/mcp/list.ts")).mcpDisableCommand,
  ),
  "mcp restart": verb(
    "Start an MCP server anew",
    async () => (await import("./commands/mcp/list.ts")).mcpRestartCommand,
  ),
  "mcp logs": verb(
    "Show the end of an MCP server's log",
    async () => (await import("./commands/mcp/list.ts")).mcpLogsCommand,
  ),
  "mcp add": verb(
    "Install an MCP server once, or enter the address of one",
    async () => (await import("./commands/mcp/add.ts")).mcpAddCommand,
  ),
  "mcp import": verb(
    "Take over the MCP servers of another program",
    async () => (await import("./commands/mcp/import.ts")).mcpImportCommand,
  ),
  "mcp changes": verb(
    "Show the tools of an MCP server that wait for your word",
    async () => (await import("./commands/mcp/accept.ts")).mcpChangesCommand,
  ),
  "mcp accept": verb(
    "Offer tools of an MCP server that have changed or are new",
    async () => (await import("./commands/mcp/accept.ts")).mcpAcceptCommand,
  ),
  "mcp prompts": verb(
    "List or read the prompts of an MCP server",
    async () => (await import("./commands/mcp/read.ts")).mcpPromptsCommand,
  ),
  "mcp resources": verb(
    "List or read the resources of an MCP server",
    async () => (await import("./commands/mcp/read.ts")).mcpResourcesCommand,
  ),
  "mcp login": verb(
    "Sign in to an MCP server",
    async () => (await import("./commands/mcp/login.ts")).mcpLoginCommand,
  ),
  "mcp logout": verb(
    "Sign out of an MCP server",
    async () => (await import("./commands/mcp/login.ts")).mcpLogoutCommand,
  ),
  "mcp remove": verb(
    "Take an MCP server out of the configuration",
    async () => (await import("./commands/mcp/remove.ts")).mcpRemoveCommand,
  ),
  "mcp forget": verb(
    "Remove what is kept of an MCP server that left the configuration",
    async () => (await import("./commands/mcp/forget.ts")).mcpForgetCommand,
  ),
  "mcp serve": verb(
    "Offer the tools to another agent, over MCP on standard input and output",
    async () => (await import("./commands/mcp/serve.ts")).mcpServeCommand,
  ),
  "approvals list": verb(
    "List tool calls that wait for an answer",
    async () => (await import("./commands/approvals.ts")).approvalsListCommand,
  ),
  "approvals show": verb(
    "Show what a call would do",
    async () => (await import("./commands/approvals.ts")).approvalsShowCommand,
  ),
  "approvals approve": verb(
    "Let a call through",
    async () => (await import("./commands/approvals.ts")).approvalsApproveCommand,
  ),
  "approvals deny": verb("Deny a call", async () => (await import("./commands/approvals.ts")).approvalsDenyCommand),
  "approvals rules": verb(
    "List answers that are remembered",
    async () => (await import("./commands/approvals.ts")).approvalsRulesCommand,
  ),
  "approvals revoke": verb(
    "Forget a remembered answer",
    async () => (await import("./commands/approvals.ts")).approvalsRevokeCommand,
  ),
  "taint list": verb(
    "List files made from content from outside",
    async () => (await import("./commands/taint.ts")).taintListCommand,
  ),
  "taint clear": verb(
    "Vouch for such a file or folder",
    async () => (await import("./commands/taint.ts")).taintClearCommand,
  ),
  "cron list": verb(
    "List schedules, their next firing and how the last one ended",
    async () => (await import("./commands/cron.ts")).cronListCommand,
  ),
  "cron run": verb("Fire a schedule now", async () => (await import("./commands/cron.ts")).cronRunCommand),
  "cron history": verb(
    "Show the past firings of a schedule and how they ended",
    async () => (await import("./commands/cron.ts")).cronHistoryCommand,
  ),
  "runs list": verb("List runs", async () => (await import("./commands/runs.ts")).runsListCommand),
  "runs show": verb("Show one run", async () => (await import("./commands/runs.ts")).runsShowCommand),
  "runs events": verb(
    "Show what a run says and does",
    async () => (await import("./commands/runs.ts")).runsEventsCommand,
  ),
  "runs start": verb(
    "Start work that goes on without this terminal",
    async () => (await import("./commands/runs.ts")).runsStartCommand,
  ),
  "runs cancel": verb("Stop a run", async () => (await import("./commands/runs.ts")).runsCancelCommand),
  "runs resolve": verb(
    "Decide about a run that was cut off during a call with an effect",
    async () => (await import("./commands/runs.ts")).runsResolveCommand,
  ),
  "deliveries list": verb(
    "List the replies of channels that go to a reply_url, and how they fared",
    async () => (await import("./commands/deliveries.ts")).deliveriesListCommand,
  ),
  "deliveries release": verb(
    "Send a delivery that is held or failed",
    async () => (await import("./commands/deliveries.ts")).deliveriesReleaseCommand,
  ),
  "deliveries drop": verb(
    "Give up a delivery that is held",
    async () => (await import("./commands/deliveries.ts")).deliveriesDropCommand,
  ),
  node: verb(
    "Offer the tools of this machine to a gateway elsewhere",
    async () => (await import("./commands/node.ts")).nodeCommand,
  ),
  "nodes list": verb(
    "List the nodes that may offer their tools, and which are connected",
    async () => (await import("./commands/node.ts")).nodesListCommand,
  ),
  "nodes show": verb(
    "Show one node and its tools",
    async () => (await import("./commands/node.ts")).nodesShowCommand,
  ),
  "plugin new": verb(
    "Write a plugin to begin with",
    async () => (await import("./commands/plugin_author.ts")).pluginNewCommand,
  ),
  "plugin test": verb(
    "Check a plugin, and call one of its tools",
    async () => (await import("./commands/plugin_author.ts")).pluginTestCommand,
  ),
  "plugin package": verb(
    "Write the package of a plugin",
    async () => (await import("./commands/plugin_author.ts")).pluginPackageCommand,
  ),
  "plugin dev": verb(
    "Serve a plugin while you work on it",
    async () => (await import("./commands/plugin_author.ts")).pluginDevCommand,
  ),
  "plugin install": verb(
    "Install a package, or a plugin of the registry",
    async () => (await import("./commands/plugin.ts")).pluginInstallCommand,
  ),
  "plugin list": verb(
    "List plugins and why each is on or off",
    async () => (await import("./commands/plugin.ts")).pluginListCommand,
  ),
  "plugin info": verb(
    "Describe one plugin",
    async () => (await import("./commands/plugin.ts")).pluginInfoCommand,
  ),
  "plugin enable": verb(
    "Show what a plugin may do, and let it",
    async () => (await import("./commands/plugin.ts")).pluginEnableCommand,
  ),
  "plugin disable": verb(
    "Turn the tools of a plugin off",
    async () => (await import("./commands/plugin.ts")).pluginDisableCommand,
  ),
  "plugin search": verb(
    "Find plugins in the registry",
    async () => (await import("./commands/plugin.ts")).pluginSearchCommand,
  ),
  "plugin update": verb(
    "Install newer versions from the registry",
    async () => (await import("./commands/plugin.ts")).pluginUpdateCommand,
  ),
  "plugin remove": verb(
    "Remove an installed plugin",
    async () => (await import("./commands/plugin.ts")).pluginRemoveCommand,
  ),
  "plugin trust-key": verb(
    "Accept another key of a plugin's publisher",
    async () => (await import("./commands/plugin.ts")).pluginTrustKeyCommand,
  ),
  "skill list": verb(
    "List skills and why each is on or off",
    async () => (await import("./commands/skill.ts")).skillListCommand,
  ),
  "skill install": verb(
    "Install a skill from a folder, an archive or a git repository",
    async () => (await import("./commands/skill.ts")).skillInstallCommand,
  ),
  "skill test": verb(
    "Check a skill strictly",
    async () => (await import("./commands/skill.ts")).skillTestCommand,
  ),
  "skill trust": verb(
    "Show a skill or what changed of it, and let the agent read it",
    async () => (await import("./commands/skill.ts")).skillTrustCommand,
  ),
  "skill remove": verb(
    "Remove an installed skill",
    async () => (await import("./commands/skill.ts")).skillRemoveCommand,
  ),
  "instructions show": verb(
    "Show AGENTS.md or its like of the workspace, and whether runs are told of it",
    async () => (await import("./commands/instructions.ts")).instructionsShowCommand,
  ),
  "instructions trust": verb(
    "Show that file, and let runs be told of it",
    async () => (await import("./commands/instructions.ts")).instructionsTrustCommand,
  ),
  "instructions untrust": verb(
    "Take the trust in that file back",
    async () => (await import("./commands/instructions.ts")).instructionsUntrustCommand,
  ),
  "browser login": verb(
    "Sign the agent's browser in at a site, in a window",
    async () => (await import("./commands/browser.ts")).browserLoginCommand,
  ),
  "browser logins": verb(
    "List the sites that the agent's browser is signed in at",
    async () => (await import("./commands/browser.ts")).browserLoginsCommand,
  ),
  "browser logout": verb(
    "Remove the login of a site",
    async () => (await import("./commands/browser.ts")).browserLogoutCommand,
  ),
  "policy explain": verb(
    "Say what would happen to a call, and why, without making it",
    async () => (await import("./commands/policy.ts")).policyExplainCommand,
  ),
  "policy list": verb(
    "List what decides about calls, each with where it comes from",
    async () => (await import("./commands/policy_rules.ts")).policyListCommand,
  ),
  "policy test": verb(
    "Compare what the policy decides about a file of calls with what you expect",
    async () => (await import("./commands/policy_rules.ts")).policyTestCommand,
  ),
  "policy suggest": verb(
    "Propose rules that would have saved questions which you said yes to",
    async () => (await import("./commands/policy_suggest.ts")).policySuggestCommand,
  ),
  "audit show": verb(
    "Show what was decided, approved and called",
    async () => (await import("./commands/audit.ts")).auditShowCommand,
  ),
  "audit verify": verb(
    "Check that nobody changed the records of the audit",
    async () => (await import("./commands/audit.ts")).auditVerifyCommand,
  ),
  models: verb("List the models that can be used", async () => (await import("./commands/models.ts")).modelsCommand),
  "models trust": verb(
    "Trust a local model server that another user runs",
    async () => (await import("./commands/models.ts")).modelsTrustCommand,
  ),
  "config show": verb(
    "Show the configuration in use",
    async () => (await import("./commands/config.ts")).configShowCommand,
  ),
  "config get": verb("Print one value", async () => (await import("./commands/config.ts")).configGetCommand),
  "config set": verb(
    "Change one value in the file",
    async () => (await import("./commands/config.ts")).configSetCommand,
  ),
  "config check": verb(
    "Check the configuration",
    async () => (await import("./commands/config.ts")).configCheckCommand,
  ),
  "config schema": verb(
    "Print the JSON Schema of postern.toml",
    async () => (await import("./commands/config.ts")).configSchemaCommand,
  ),
  "cluster status": verb(
    "Show the gateways that share the database, who owns what, and what waits",
    async () => (await import("./commands/cluster.ts")).clusterStatusCommand,
  ),
  "cluster runs": verb(
    "List the open runs of the cluster with the gateways that own them",
    async () => (await import("./commands/cluster.ts")).clusterRunsCommand,
  ),
  "cluster drain": verb(
    "Let a gateway end its work, hand the rest to the others, and take no more",
    async () => (await import("./commands/cluster.ts")).clusterDrainCommand,
  ),
  "cluster forget-folder": verb(
    "Let a workspace be another folder: it was moved, or is cloned anew",
    async () => (await import("./commands/cluster.ts")).clusterForgetFolderCommand,
  ),
  doctor: verb(
    "Check everything the gateway needs, and say how to fix it",
    async () => (await import("./commands/doctor.ts")).doctorCommand,
  ),
  init: verb(
    "Write a commented postern.toml; asks three questions, with --yes none",
    async () => (await import("./commands/init.ts")).initCommand,
  ),
  backup: verb(
    "Write all records and keys to one file",
    async () => (await import("./commands/backup.ts")).backupCommand,
  ),
  restore: verb(
    "Replace all records by a backup; unfinished work in it waits for a person",
    async () => (await import("./commands/backup.ts")).restoreCommand,
  ),
  "storage migrate": verb(
    "Move all records from SQLite into the PostgreSQL database of [storage]",
    async () => (await import("./commands/storage.ts")).storageMigrateCommand,
  ),
  "storage rekey": verb(
    "Encrypt records anew with the new key",
    async () => (await import("./commands/storage_rekey.ts")).storageRekeyCommand,
  ),
  "storage hold": verb(
    "Hold unfinished work for a person, after pg_restore",
    async () => (await import("./commands/storage_hold.ts")).storageHoldCommand,
  ),
  "storage unmark": verb(
    "Use the SQLite records again that were moved",
    async () => (await import("./commands/storage.ts")).storageUnmarkCommand,
  ),
  completions: verb(
    "Print the script by which bash, zsh or fish complete commands",
    async () => (await import("./commands/completions.ts")).completionsCommand,
  ),
  trust: verb("Accept the postern.toml of this folder", async () => (await import("./commands/init.ts")).trustCommand),
};
