import type { Command, Verb } from "./command.ts";

/** Returns verbs whose commands one file has, each with its summary and the name of its export. The file is loaded when one of them is used. */
function from<M>(
  load: () => Promise<M>,
  verbs: Readonly<Record<string, readonly [summary: string, command: keyof M]>>,
): Readonly<Record<string, Verb>> {
  const entries = Object.entries(verbs).map(([name, [summary, command]]): [string, Verb] => [
    name,
    // Each command has argument types of its own; the table needs the general type only
    { summary, load: async () => (await load())[command] as Command },
  ]);
  return Object.fromEntries(entries);
}

/** Table of all verbs, in the order of the help. A command's file is loaded when the verb is used. */
export const VERBS: Readonly<Record<string, Verb>> = {
  ...from(() => import("./commands/gateway.ts"), {
    gateway: ["Run the gateway in this terminal", "gatewayCommand"],
  }),
  ...from(() => import("./commands/daemon.ts"), {
    "daemon start": ["Run the gateway in the background", "daemonStartCommand"],
    "daemon status": ["Say whether the daemon runs, where, and since when", "daemonStatusCommand"],
    "daemon stop": ["Let the daemon finish its work, and stop it", "daemonStopCommand"],
  }),
  ...from(() => import("./commands/service.ts"), {
    "service install": ["Install the gateway as a service of this system", "serviceInstallCommand"],
    "service start": ["Start the service", "serviceStartCommand"],
    "service status": ["Say whether the service runs, and whether its port answers", "serviceStatusCommand"],
    "service restart": ["Stop the service and start it again", "serviceRestartCommand"],
    "service stop": ["Stop the service", "serviceStopCommand"],
    "service uninstall": ["Stop the service and remove it; records and configuration stay", "serviceUninstallCommand"],
  }),
  ...from(() => import("./commands/chat.ts"), {
    chat: ["Chat with the agent", "chatCommand"],
  }),
  ...from(() => import("./commands/open.ts"), {
    open: ["Open the dashboard in the browser, signed in", "openCommand"],
  }),
  ...from(() => import("./commands/status.ts"), {
    status: ["Show whether the gateway runs, its model, and what waits for you", "statusCommand"],
  }),
  ...from(() => import("./commands/logs.ts"), {
    logs: ["Show the log of the running gateway", "logsCommand"],
  }),
  ...from(() => import("./commands/clients.ts"), {
    clients: ["Connect another program to this gateway", "clientsCommand"],
  }),
  ...from(() => import("./commands/token.ts"), {
    pair: ["Print a new pairing code", "pairCommand"],
    "token list": ["List tokens", "tokenListCommand"],
    "token show": ["Show one token", "tokenShowCommand"],
    "token add": ["Make a token", "tokenAddCommand"],
    "token remove": ["Revoke one token, or all", "tokenRemoveCommand"],
  }),
  ...from(() => import("./commands/tools.ts"), {
    "tool list": ["List tools and why each is on or off", "toolsListCommand"],
    "tool show": ["Describe one tool", "toolsShowCommand"],
    "tool enable": ["Turn a tool on in the configuration", "toolsEnableCommand"],
    "tool disable": ["Turn a tool off in the configuration", "toolsDisableCommand"],
    "tool schema": ["Print a tool's input schema", "toolsSchemaCommand"],
    "tool call": ["Call a tool", "toolsCallCommand"],
  }),
  ...from(() => import("./commands/mcp/list.ts"), {
    "mcp list": ["List MCP servers, and why each is off or failed", "mcpListCommand"],
    "mcp show": ["Show one MCP server with its tools", "mcpShowCommand"],
    "mcp enable": ["Let an MCP server run that was turned off", "mcpEnableCommand"],
    "mcp disable": ["End an MCP server, and keep it from being started", "mcpDisableCommand"],
    "mcp restart": ["Restart an MCP server", "mcpRestartCommand"],
    "mcp logs": ["Show the end of an MCP server's log", "mcpLogsCommand"],
  }),
  ...from(() => import("./commands/mcp/add.ts"), {
    "mcp add": ["Install an MCP server once, or enter the address of one", "mcpAddCommand"],
  }),
  ...from(() => import("./commands/mcp/import.ts"), {
    "mcp import": ["Take over the MCP servers of another program", "mcpImportCommand"],
  }),
  ...from(() => import("./commands/mcp/accept.ts"), {
    "mcp changes": ["Show the tools of an MCP server that wait for your decision", "mcpChangesCommand"],
    "mcp accept": ["Offer tools of an MCP server that have changed or are new", "mcpAcceptCommand"],
  }),
  ...from(() => import("./commands/mcp/read.ts"), {
    "mcp prompts": ["List or read the prompts of an MCP server", "mcpPromptsCommand"],
    "mcp resources": ["List or read the resources of an MCP server", "mcpResourcesCommand"],
  }),
  ...from(() => import("./commands/mcp/login.ts"), {
    "mcp login": ["Sign in to an MCP server", "mcpLoginCommand"],
    "mcp logout": ["Sign out of an MCP server", "mcpLogoutCommand"],
  }),
  ...from(() => import("./commands/mcp/remove.ts"), {
    "mcp remove": ["Take an MCP server out of the configuration", "mcpRemoveCommand"],
  }),
  ...from(() => import("./commands/mcp/forget.ts"), {
    "mcp forget": ["Remove what is kept of an MCP server that left the configuration", "mcpForgetCommand"],
  }),
  ...from(() => import("./commands/mcp/serve.ts"), {
    "mcp serve": ["Offer the tools to another agent, over MCP on standard input and output", "mcpServeCommand"],
  }),
  ...from(() => import("./commands/approvals.ts"), {
    "approval list": ["List tool calls that wait for an answer", "approvalsListCommand"],
    "approval show": ["Show what a call would do", "approvalsShowCommand"],
    "approval approve": ["Let a call through", "approvalsApproveCommand"],
    "approval deny": ["Deny a call", "approvalsDenyCommand"],
    "approval rules": ["List answers that are remembered", "approvalsRulesCommand"],
    "approval revoke": ["Forget a remembered answer", "approvalsRevokeCommand"],
  }),
  ...from(() => import("./commands/halt.ts"), {
    halt: ["Stop all work at once, or some of it", "haltCommand"],
    resume: ["Let halted work go on", "resumeCommand"],
  }),
  ...from(() => import("./commands/taint.ts"), {
    "taint list": ["List files made from content from outside", "taintListCommand"],
    "taint clear": ["Vouch for such a file or folder", "taintClearCommand"],
  }),
  ...from(() => import("./commands/schedule.ts"), {
    "schedule list": ["List schedules, their next firing and how the last one ended", "scheduleListCommand"],
    "schedule show": ["Show one schedule", "scheduleShowCommand"],
    "schedule add": ["Let the agent work at set times", "scheduleAddCommand"],
    "schedule remove": ["Remove a schedule with its history", "scheduleRemoveCommand"],
    "schedule enable": ["Let a paused schedule fire again", "scheduleEnableCommand"],
    "schedule disable": ["Pause a schedule", "scheduleDisableCommand"],
    "schedule run": ["Fire a schedule now", "scheduleRunCommand"],
    "schedule history": ["Show the past firings of a schedule and how they ended", "scheduleHistoryCommand"],
  }),
  ...from(() => import("./commands/runs.ts"), {
    "run list": ["List runs", "runsListCommand"],
    "run show": ["Show one run", "runsShowCommand"],
    "run events": ["Show what a run says and does", "runsEventsCommand"],
    "run start": ["Start work that goes on without this terminal", "runsStartCommand"],
    "run cancel": ["Stop a run", "runsCancelCommand"],
    "run resolve": ["Say what became of a tool call that a crash interrupted", "runsResolveCommand"],
  }),
  ...from(() => import("./commands/conversation.ts"), {
    "conversation list": ["List conversations", "conversationListCommand"],
    "conversation show": ["Show the last messages of a conversation", "conversationShowCommand"],
    "conversation export": ["Print a whole conversation as Markdown or JSON", "conversationExportCommand"],
    "conversation remove": ["Delete a conversation", "conversationRemoveCommand"],
  }),
  ...from(() => import("./commands/memory.ts"), {
    "memory list": ["List what the agent remembers", "memoryListCommand"],
    "memory search": ["Find memories by words", "memorySearchCommand"],
    "memory show": ["Show one memory", "memoryShowCommand"],
    "memory add": ["Remember a text under a key", "memoryAddCommand"],
    "memory remove": ["Forget one memory", "memoryRemoveCommand"],
  }),
  ...from(() => import("./commands/procedure.ts"), {
    "procedure list": ["List procedures, and executions that are open", "procedureListCommand"],
    "procedure show": ["Show a procedure, or how far an execution is", "procedureShowCommand"],
    "procedure start": ["Start a procedure", "procedureStartCommand"],
  }),
  ...from(() => import("./commands/deliveries.ts"), {
    "deliveries list": [
      "List the replies of channels that go to a reply_url, and how they fared",
      "deliveriesListCommand",
    ],
    "deliveries release": ["Send a delivery that is held or failed", "deliveriesReleaseCommand"],
    "deliveries drop": ["Give up a delivery that is held", "deliveriesDropCommand"],
  }),
  ...from(() => import("./commands/node.ts"), {
    node: ["Offer the tools of this machine to a gateway elsewhere", "nodeCommand"],
    "nodes list": ["List the nodes that may offer their tools, and which are connected", "nodesListCommand"],
    "nodes show": ["Show one node and its tools", "nodesShowCommand"],
  }),
  ...from(() => import("./commands/plugin_author.ts"), {
    "plugin new": ["Write a plugin to begin with", "pluginNewCommand"],
    "plugin test": ["Check a plugin, and call one of its tools", "pluginTestCommand"],
    "plugin package": ["Write the package of a plugin", "pluginPackageCommand"],
    "plugin dev": ["Serve a plugin while you work on it", "pluginDevCommand"],
  }),
  ...from(() => import("./commands/plugin.ts"), {
    "plugin add": ["Install a package, or a plugin of the registry", "pluginAddCommand"],
    "plugin list": ["List plugins and why each is on or off", "pluginListCommand"],
    "plugin show": ["Describe one plugin", "pluginShowCommand"],
    "plugin enable": ["Show what a plugin may do, and let it", "pluginEnableCommand"],
    "plugin disable": ["Turn the tools of a plugin off", "pluginDisableCommand"],
    "plugin search": ["Find plugins in the registry", "pluginSearchCommand"],
    "plugin update": ["Install newer versions from the registry", "pluginUpdateCommand"],
    "plugin remove": ["Remove an installed plugin", "pluginRemoveCommand"],
    "plugin trust-key": ["Accept another key of a plugin's publisher", "pluginTrustKeyCommand"],
  }),
  ...from(() => import("./commands/skill.ts"), {
    "skill list": ["List skills and why each is on or off", "skillListCommand"],
    "skill show": ["Show one skill with its text", "skillShowCommand"],
    "skill add": ["Install a skill from a folder, an archive or a git repository", "skillAddCommand"],
    "skill test": ["Check a skill strictly", "skillTestCommand"],
    "skill enable": ["Show a skill or what changed of it, and let the agent read it", "skillEnableCommand"],
    "skill disable": ["Stop trusting a skill", "skillDisableCommand"],
    "skill remove": ["Remove an installed skill", "skillRemoveCommand"],
  }),
  ...from(() => import("./commands/instructions.ts"), {
    "instructions show": [
      "Show AGENTS.md or its like of the workspace, and whether runs are told of it",
      "instructionsShowCommand",
    ],
    "instructions trust": ["Show that file, and let runs be told of it", "instructionsTrustCommand"],
    "instructions untrust": ["Take the trust in that file back", "instructionsUntrustCommand"],
  }),
  ...from(() => import("./commands/browser.ts"), {
    "browser login": ["Sign the agent's browser in at a site, in a window", "browserLoginCommand"],
    "browser logins": ["List the sites that the agent's browser is signed in at", "browserLoginsCommand"],
    "browser logout": ["Remove the login of a site", "browserLogoutCommand"],
  }),
  ...from(() => import("./commands/policy.ts"), {
    "policy explain": ["Say what would happen to a call, and why, without making it", "policyExplainCommand"],
  }),
  ...from(() => import("./commands/policy_rules.ts"), {
    "policy list": ["List what decides about calls, each with where it comes from", "policyListCommand"],
    "policy test": ["Compare what the policy decides about a file of calls with what you expect", "policyTestCommand"],
  }),
  ...from(() => import("./commands/policy_suggest.ts"), {
    "policy suggest": ["Propose rules that would have saved questions which you said yes to", "policySuggestCommand"],
  }),
  ...from(() => import("./commands/audit.ts"), {
    "audit show": ["Show what was decided, approved and called", "auditShowCommand"],
    "audit verify": ["Check that nobody changed the records of the audit", "auditVerifyCommand"],
  }),
  ...from(() => import("./commands/models.ts"), {
    models: ["List the models that can be used", "modelsCommand"],
    "models trust": ["Trust a local model server that another user runs", "modelsTrustCommand"],
  }),
  ...from(() => import("./commands/config.ts"), {
    "config show": ["Show the configuration in use", "configShowCommand"],
    "config get": ["Print one value", "configGetCommand"],
    "config set": ["Change one value in the file", "configSetCommand"],
    "config check": ["Check the configuration", "configCheckCommand"],
    "config schema": ["Print the JSON Schema of postern.toml", "configSchemaCommand"],
  }),
  ...from(() => import("./commands/preset.ts"), {
    "preset show": ["Show what each preset lets the agent do, and which one is in use", "presetShowCommand"],
    "preset apply": ["Change the configuration to a preset: look, write or code", "presetApplyCommand"],
  }),
  ...from(() => import("./commands/cluster.ts"), {
    "cluster status": [
      "Show the gateways that share the database, who owns what, and what waits",
      "clusterStatusCommand",
    ],
    "cluster runs": ["List the open runs of the cluster with the gateways that own them", "clusterRunsCommand"],
    "cluster drain": [
      "Let a gateway end its work, hand the rest to the others, and accept no new work",
      "clusterDrainCommand",
    ],
    "cluster forget-folder": ["Point a workspace at another folder (moved or re-cloned)", "clusterForgetFolderCommand"],
  }),
  ...from(() => import("./commands/doctor.ts"), {
    doctor: ["Check everything the gateway needs, and say how to fix it", "doctorCommand"],
  }),
  ...from(() => import("./commands/init.ts"), {
    init: ["Choose a model, a folder and how far the agent may go; --yes asks nothing", "initCommand"],
  }),
  ...from(() => import("./commands/backup.ts"), {
    backup: ["Write all records and keys to one file", "backupCommand"],
    restore: ["Replace all records by a backup; unfinished work in it waits for a person", "restoreCommand"],
  }),
  ...from(() => import("./commands/storage.ts"), {
    "storage migrate": [
      "Move all records from SQLite into the PostgreSQL database of [storage]",
      "storageMigrateCommand",
    ],
  }),
  ...from(() => import("./commands/storage_rekey.ts"), {
    "storage rekey": ["Encrypt all records with the new key", "storageRekeyCommand"],
  }),
  ...from(() => import("./commands/storage_hold.ts"), {
    "storage hold": ["Hold unfinished work for a person, after pg_restore", "storageHoldCommand"],
  }),
  ...from(() => import("./commands/storage.ts"), {
    "storage unmark": ["Use the SQLite records again that were moved", "storageUnmarkCommand"],
  }),
  ...from(() => import("./commands/completions.ts"), {
    completions: ["Print the script by which bash, zsh or fish complete commands", "completionsCommand"],
  }),
  ...from(() => import("./commands/init.ts"), {
    trust: ["Accept the postern.toml of this folder", "trustCommand"],
  }),
};

/** Part of the help: a heading, and the nouns and single commands below it, with what each is about. */
export interface HelpGroup {
  readonly heading: string;
  /** By the first word of their verbs. Undefined: the summary of the one verb */
  readonly words: Readonly<Record<string, string | undefined>>;
}

/** Groups of the help and of the man page. Every first word of the table is in one of them, which a test checks. */
export const HELP_GROUPS: readonly HelpGroup[] = [
  {
    heading: "Begin",
    words: {
      init: undefined,
      gateway: undefined,
      chat: undefined,
      open: undefined,
      status: undefined,
      pair: undefined,
      clients: undefined,
      doctor: undefined,
    },
  },
  {
    heading: "Work of the agent",
    words: {
      run: "Work that goes on without this terminal",
      conversation: "What was said",
      approval: "Tool calls that wait for a person, and remembered answers",
      schedule: "Work at set times",
      procedure: "Work in fixed steps",
      memory: "What the agent remembers",
      deliveries: "Replies of channels on their way to a reply_url",
    },
  },
  {
    heading: "What the agent can use",
    words: {
      tool: "The agent's tools",
      mcp: "MCP servers",
      skill: "Skills",
      plugin: "Plugins",
      models: undefined,
      instructions: "AGENTS.md or its like of the workspace",
      browser: "Sites that the agent's browser is signed in at",
      nodes: "Other machines that offer their tools",
      node: undefined,
    },
  },
  {
    heading: "Access and safety",
    words: {
      token: "Bearer tokens of other programs",
      policy: "What the agent may do, and why",
      preset: "How far the agent may go",
      audit: "What was decided, approved and called",
      taint: "Files made from content from outside",
      trust: undefined,
    },
  },
  {
    heading: "Keep it running",
    words: {
      config: "The configuration file",
      daemon: "The gateway in the background",
      service: "The gateway as a service of the system",
      logs: undefined,
      backup: undefined,
      restore: undefined,
      storage: "The database",
      cluster: "Gateways that share a database",
      completions: undefined,
    },
  },
];
