import { defineCommand } from "citty";
import type { Command, Noun, Verb } from "./command.ts";

/** Summary of a verb, and the name of its command in its file. */
type Row<M> = readonly [summary: string, command: keyof M];

/** Returns the verb of a command. Its file is loaded when its arguments are needed. */
function verbOf<M>(loadFile: () => Promise<M>, command: keyof M, description: string): Verb {
  // Each command has argument types of its own; the table needs the general type only
  const load = async () => (await loadFile())[command] as Command;
  const verb = defineCommand({
    meta: { description },
    args: async () => (await load()).args,
    run: async ({ args, data }) => (await load()).run(data, args),
  });
  return { ...verb, load } as Verb; // citty's type leaves open how meta and arguments are given
}

/** Returns the verbs whose commands one file has. */
function from<M>(loadFile: () => Promise<M>, rows: Readonly<Record<string, Row<M>>>): Noun["subCommands"] {
  const verbs = Object.entries(rows).map(([name, [summary, command]]) => [name, verbOf(loadFile, command, summary)]);
  return Object.fromEntries(verbs);
}

/** Returns a noun: what it is about, and its verbs. */
function noun(description: string, subCommands: Noun["subCommands"]): Noun {
  return defineCommand({ meta: { description }, subCommands }) as Noun; // its verbs are commands, which citty types one by one
}

/** Returns a noun whose commands one file has. */
function nounOf<M>(description: string, loadFile: () => Promise<M>, rows: Readonly<Record<string, Row<M>>>): Noun {
  return noun(description, from(loadFile, rows));
}

/** Nouns with their verbs, and single commands, under the headings of the help and of the man page. */
export const HELP_GROUPS: Readonly<Record<string, Readonly<Record<string, Verb | Noun>>>> = {
  Begin: {
    init: verbOf(
      () => import("./commands/init.ts"),
      "initCommand",
      "Choose a model, a folder and how far the agent may go; --yes asks nothing",
    ),
    gateway: verbOf(() => import("./commands/gateway.ts"), "gatewayCommand", "Run the gateway in this terminal"),
    chat: verbOf(() => import("./commands/chat.ts"), "chatCommand", "Chat with the agent"),
    open: verbOf(() => import("./commands/open.ts"), "openCommand", "Open the dashboard in the browser, signed in"),
    status: verbOf(
      () => import("./commands/status.ts"),
      "statusCommand",
      "Show whether the gateway runs, its model, and what waits for you",
    ),
    pair: verbOf(() => import("./commands/token.ts"), "pairCommand", "Print a new pairing code"),
    clients: verbOf(() => import("./commands/clients.ts"), "clientsCommand", "Connect another program to this gateway"),
    doctor: verbOf(
      () => import("./commands/doctor.ts"),
      "doctorCommand",
      "Check everything the gateway needs, and say how to fix it",
    ),
  },
  "Work of the agent": {
    run: nounOf("Work that goes on without this terminal", () => import("./commands/runs.ts"), {
      list: ["List runs", "runsListCommand"],
      show: ["Show one run", "runsShowCommand"],
      events: ["Show what a run says and does", "runsEventsCommand"],
      start: ["Start work that goes on without this terminal", "runsStartCommand"],
      cancel: ["Stop a run", "runsCancelCommand"],
      resolve: ["Say what became of a tool call that a crash interrupted", "runsResolveCommand"],
    }),
    conversation: nounOf("What was said", () => import("./commands/conversation.ts"), {
      list: ["List conversations", "conversationListCommand"],
      show: ["Show the last messages of a conversation", "conversationShowCommand"],
      export: ["Print a whole conversation as Markdown or JSON", "conversationExportCommand"],
      remove: ["Delete a conversation", "conversationRemoveCommand"],
    }),
    approval: nounOf(
      "Tool calls that wait for a person, and remembered answers",
      () => import("./commands/approvals.ts"),
      {
        list: ["List tool calls that wait for an answer", "approvalsListCommand"],
        show: ["Show what a call would do", "approvalsShowCommand"],
        approve: ["Let a call through", "approvalsApproveCommand"],
        deny: ["Deny a call", "approvalsDenyCommand"],
        rules: ["List answers that are remembered", "approvalsRulesCommand"],
        revoke: ["Forget a remembered answer", "approvalsRevokeCommand"],
      },
    ),
    schedule: nounOf("Work at set times", () => import("./commands/schedule.ts"), {
      list: ["List schedules, their next firing and how the last one ended", "scheduleListCommand"],
      show: ["Show one schedule", "scheduleShowCommand"],
      add: ["Let the agent work at set times", "scheduleAddCommand"],
      remove: ["Remove a schedule with its history", "scheduleRemoveCommand"],
      enable: ["Let a paused schedule fire again", "scheduleEnableCommand"],
      disable: ["Pause a schedule", "scheduleDisableCommand"],
      run: ["Fire a schedule now", "scheduleRunCommand"],
      history: ["Show the past firings of a schedule and how they ended", "scheduleHistoryCommand"],
    }),
    procedure: nounOf("Work in fixed steps", () => import("./commands/procedure.ts"), {
      list: ["List procedures, and executions that are open", "procedureListCommand"],
      show: ["Show a procedure, or how far an execution is", "procedureShowCommand"],
      start: ["Start a procedure", "procedureStartCommand"],
    }),
    memory: nounOf("What the agent remembers", () => import("./commands/memory.ts"), {
      list: ["List what the agent remembers", "memoryListCommand"],
      search: ["Find memories by words", "memorySearchCommand"],
      show: ["Show one memory", "memoryShowCommand"],
      add: ["Remember a text under a key", "memoryAddCommand"],
      remove: ["Forget one memory", "memoryRemoveCommand"],
    }),
    deliveries: nounOf("Replies of channels on their way to a reply_url", () => import("./commands/deliveries.ts"), {
      list: ["List the replies of channels that go to a reply_url, and how they fared", "deliveriesListCommand"],
      release: ["Send a delivery that is held or failed", "deliveriesReleaseCommand"],
      drop: ["Give up a delivery that is held", "deliveriesDropCommand"],
    }),
    notify: nounOf("Messages to you, by [[notify]]", () => import("./commands/notify.ts"), {
      test: ["Send a message of a test by a rule, and say whether it was taken", "notifyTestCommand"],
    }),
  },
  "What the agent can use": {
    tool: nounOf("The agent's tools", () => import("./commands/tools.ts"), {
      list: ["List tools and why each is on or off", "toolsListCommand"],
      show: ["Describe one tool", "toolsShowCommand"],
      enable: ["Turn a tool on in the configuration", "toolsEnableCommand"],
      disable: ["Turn a tool off in the configuration", "toolsDisableCommand"],
      schema: ["Print a tool's input schema", "toolsSchemaCommand"],
      call: ["Call a tool", "toolsCallCommand"],
    }),
    mcp: noun("MCP servers", {
      ...from(() => import("./commands/mcp/list.ts"), {
        list: ["List MCP servers, and why each is off or failed", "mcpListCommand"],
        show: ["Show one MCP server with its tools", "mcpShowCommand"],
        enable: ["Let an MCP server run that was turned off", "mcpEnableCommand"],
        disable: ["End an MCP server, and keep it from being started", "mcpDisableCommand"],
        restart: ["Restart an MCP server", "mcpRestartCommand"],
        logs: ["Show the end of an MCP server's log", "mcpLogsCommand"],
      }),
      ...from(() => import("./commands/mcp/add.ts"), {
        add: ["Install an MCP server once, or enter the address of one", "mcpAddCommand"],
      }),
      ...from(() => import("./commands/mcp/import.ts"), {
        import: ["Take over the MCP servers of another program", "mcpImportCommand"],
      }),
      ...from(() => import("./commands/mcp/accept.ts"), {
        changes: ["Show the tools of an MCP server that wait for your decision", "mcpChangesCommand"],
        accept: ["Offer tools of an MCP server that have changed or are new", "mcpAcceptCommand"],
      }),
      ...from(() => import("./commands/mcp/read.ts"), {
        prompts: ["List or read the prompts of an MCP server", "mcpPromptsCommand"],
        resources: ["List or read the resources of an MCP server", "mcpResourcesCommand"],
      }),
      ...from(() => import("./commands/mcp/login.ts"), {
        login: ["Sign in to an MCP server", "mcpLoginCommand"],
        logout: ["Sign out of an MCP server", "mcpLogoutCommand"],
      }),
      ...from(() => import("./commands/mcp/remove.ts"), {
        remove: ["Take an MCP server out of the configuration", "mcpRemoveCommand"],
      }),
      ...from(() => import("./commands/mcp/forget.ts"), {
        forget: ["Remove what is kept of an MCP server that left the configuration", "mcpForgetCommand"],
      }),
      ...from(() => import("./commands/mcp/serve.ts"), {
        serve: ["Offer the tools to another agent, over MCP on standard input and output", "mcpServeCommand"],
      }),
    }),
    skill: nounOf("Skills", () => import("./commands/skill.ts"), {
      list: ["List skills and why each is on or off", "skillListCommand"],
      show: ["Show one skill with its text", "skillShowCommand"],
      add: ["Install a skill from a folder, an archive or a git repository", "skillAddCommand"],
      test: ["Check a skill strictly", "skillTestCommand"],
      enable: ["Show a skill or what changed of it, and let the agent read it", "skillEnableCommand"],
      disable: ["Stop trusting a skill", "skillDisableCommand"],
      remove: ["Remove an installed skill", "skillRemoveCommand"],
    }),
    plugin: noun("Plugins", {
      ...from(() => import("./commands/plugin_author.ts"), {
        new: ["Write a plugin to begin with", "pluginNewCommand"],
        test: ["Check a plugin, and call one of its tools", "pluginTestCommand"],
        package: ["Write the package of a plugin", "pluginPackageCommand"],
        dev: ["Serve a plugin while you work on it", "pluginDevCommand"],
      }),
      ...from(() => import("./commands/plugin.ts"), {
        add: ["Install a package, or a plugin of the registry", "pluginAddCommand"],
        list: ["List plugins and why each is on or off", "pluginListCommand"],
        show: ["Describe one plugin", "pluginShowCommand"],
        enable: ["Show what a plugin may do, and let it", "pluginEnableCommand"],
        disable: ["Turn the tools of a plugin off", "pluginDisableCommand"],
        search: ["Find plugins in the registry", "pluginSearchCommand"],
        update: ["Install newer versions from the registry", "pluginUpdateCommand"],
        remove: ["Remove an installed plugin", "pluginRemoveCommand"],
        "trust-key": ["Accept another key of a plugin's publisher", "pluginTrustKeyCommand"],
      }),
    }),
    models: {
      ...verbOf(() => import("./commands/models.ts"), "modelsCommand", "List the models that can be used"),
      subCommands: from(() => import("./commands/models.ts"), {
        trust: ["Trust a local model server that another user runs", "modelsTrustCommand"],
      }),
    },
    instructions: nounOf("AGENTS.md or its like of the workspace", () => import("./commands/instructions.ts"), {
      show: ["Show AGENTS.md or its like of the workspace, and whether runs are told of it", "instructionsShowCommand"],
      trust: ["Show that file, and let runs be told of it", "instructionsTrustCommand"],
      untrust: ["Take the trust in that file back", "instructionsUntrustCommand"],
    }),
    browser: nounOf("Sites that the agent's browser is signed in at", () => import("./commands/browser.ts"), {
      login: ["Sign the agent's browser in at a site, in a window", "browserLoginCommand"],
      logins: ["List the sites that the agent's browser is signed in at", "browserLoginsCommand"],
      logout: ["Remove the login of a site", "browserLogoutCommand"],
    }),
    nodes: nounOf("Other machines that offer their tools", () => import("./commands/node.ts"), {
      list: ["List the nodes that may offer their tools, and which are connected", "nodesListCommand"],
      show: ["Show one node and its tools", "nodesShowCommand"],
    }),
    node: verbOf(
      () => import("./commands/node.ts"),
      "nodeCommand",
      "Offer the tools of this machine to a gateway elsewhere",
    ),
  },
  "Access and safety": {
    token: nounOf("Bearer tokens of other programs", () => import("./commands/token.ts"), {
      list: ["List tokens", "tokenListCommand"],
      show: ["Show one token", "tokenShowCommand"],
      add: ["Make a token", "tokenAddCommand"],
      remove: ["Revoke one token, or all", "tokenRemoveCommand"],
    }),
    policy: noun("What the agent may do, and why", {
      ...from(() => import("./commands/policy.ts"), {
        explain: ["Say what would happen to a call, and why, without making it", "policyExplainCommand"],
      }),
      ...from(() => import("./commands/policy_rules.ts"), {
        list: ["List what decides about calls, each with where it comes from", "policyListCommand"],
        test: ["Compare what the policy decides about a file of calls with what you expect", "policyTestCommand"],
      }),
      ...from(() => import("./commands/policy_suggest.ts"), {
        suggest: ["Propose rules that would have saved questions which you said yes to", "policySuggestCommand"],
      }),
    }),
    preset: nounOf("How far the agent may go", () => import("./commands/preset.ts"), {
      show: ["Show what each preset lets the agent do, and which one is in use", "presetShowCommand"],
      apply: ["Change the configuration to a preset: look, write or code", "presetApplyCommand"],
    }),
    audit: nounOf("What was decided, approved and called", () => import("./commands/audit.ts"), {
      show: ["Show what was decided, approved and called", "auditShowCommand"],
      verify: ["Check that nobody changed the records of the audit", "auditVerifyCommand"],
    }),
    halt: verbOf(() => import("./commands/halt.ts"), "haltCommand", "Stop all work at once, or some of it"),
    resume: verbOf(() => import("./commands/halt.ts"), "resumeCommand", "Let halted work go on"),
    taint: nounOf("Files made from content from outside", () => import("./commands/taint.ts"), {
      list: ["List files made from content from outside", "taintListCommand"],
      clear: ["Vouch for such a file or folder", "taintClearCommand"],
    }),
    trust: verbOf(() => import("./commands/init.ts"), "trustCommand", "Accept the postern.toml of this folder"),
  },
  "Keep it running": {
    config: nounOf("The configuration file", () => import("./commands/config.ts"), {
      show: ["Show the configuration in use", "configShowCommand"],
      get: ["Print one value", "configGetCommand"],
      set: ["Change one value in the file", "configSetCommand"],
      check: ["Check the configuration", "configCheckCommand"],
      schema: ["Print the JSON Schema of postern.toml", "configSchemaCommand"],
    }),
    daemon: nounOf("The gateway in the background", () => import("./commands/daemon.ts"), {
      start: ["Run the gateway in the background", "daemonStartCommand"],
      status: ["Say whether the daemon runs, where, and since when", "daemonStatusCommand"],
      stop: ["Let the daemon finish its work, and stop it", "daemonStopCommand"],
    }),
    service: {
      ...nounOf("The gateway as a service of the system", () => import("./commands/service.ts"), {
        install: ["Install the gateway as a service of this system", "serviceInstallCommand"],
        start: ["Start the service", "serviceStartCommand"],
        status: ["Say whether the service runs, and whether its port answers", "serviceStatusCommand"],
        restart: ["Stop the service and start it again", "serviceRestartCommand"],
        stop: ["Stop the service", "serviceStopCommand"],
        uninstall: ["Stop the service and remove it; records and configuration stay", "serviceUninstallCommand"],
      }),
      // The flag may stand before the verb too
      args: { "service-init": { type: "string" } },
    },
    logs: verbOf(() => import("./commands/logs.ts"), "logsCommand", "Show the log of the running gateway"),
    backup: verbOf(() => import("./commands/backup.ts"), "backupCommand", "Write all records and keys to one file"),
    restore: verbOf(
      () => import("./commands/backup.ts"),
      "restoreCommand",
      "Replace all records by a backup; unfinished work in it waits for a person",
    ),
    storage: noun("The database", {
      ...from(() => import("./commands/storage.ts"), {
        migrate: ["Move all records from SQLite into the PostgreSQL database of [storage]", "storageMigrateCommand"],
      }),
      ...from(() => import("./commands/storage_rekey.ts"), {
        rekey: ["Encrypt all records with the new key", "storageRekeyCommand"],
      }),
      ...from(() => import("./commands/storage_hold.ts"), {
        hold: ["Hold unfinished work for a person, after pg_restore", "storageHoldCommand"],
      }),
      ...from(() => import("./commands/storage.ts"), {
        unmark: ["Use the SQLite records again that were moved", "storageUnmarkCommand"],
      }),
    }),
    cluster: nounOf("Gateways that share a database", () => import("./commands/cluster.ts"), {
      status: ["Show the gateways that share the database, who owns what, and what waits", "clusterStatusCommand"],
      runs: ["List the open runs of the cluster with the gateways that own them", "clusterRunsCommand"],
      drain: ["Let a gateway end its work, hand the rest to the others, and accept no new work", "clusterDrainCommand"],
      "forget-folder": ["Point a workspace at another folder (moved or re-cloned)", "clusterForgetFolderCommand"],
    }),
    completions: verbOf(
      () => import("./commands/completions.ts"),
      "completionsCommand",
      "Print the script by which bash, zsh or fish complete commands",
    ),
  },
};

/** Nouns and single commands by their words, in the order of the help. */
export const NOUNS: Readonly<Record<string, Verb | Noun>> = Object.assign({}, ...Object.values(HELP_GROUPS));

/** All verbs by their names, such as `token add`, in the order of the help. */
export const VERBS: Readonly<Record<string, Verb>> = Object.fromEntries(
  Object.entries(NOUNS).flatMap(([noun, command]) => [
    ..."load" in command ? [[noun, command] as const] : [],
    ...Object.entries(command.subCommands ?? {}).map(([verb, below]) => [`${noun} ${verb}`, below] as const),
  ]),
);
