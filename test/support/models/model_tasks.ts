/** Kinds of work that a small model is tried at. */
export const TASK_KINDS = ["read", "find", "edit", "patch", "shell", "memory", "schedule"] as const;
/** Kind of work. */
export type TaskKind = (typeof TASK_KINDS)[number];

/** State of things when a task is over. */
export interface TaskOutcome {
  /** Last words of the model */
  readonly reply: string;
  /** Content of a file of the workspace. Undefined: there is none */
  file(path: string): string | undefined;
  /** Memory records, each as JSON */
  readonly memory: readonly string[];
  /** Schedules, each as JSON */
  readonly schedules: readonly string[];
}

/** Task with what must be so afterwards. */
export interface ModelTask {
  readonly kind: TaskKind;
  /** Words of the user */
  readonly say: string;
  /** Files of the workspace before, by path */
  readonly files: Readonly<Record<string, string>>;
  /** Memory before, by key */
  readonly memory: Readonly<Record<string, string>>;
  isDone(outcome: TaskOutcome): boolean;
}

/** Tools that each client has, for every task the same: each is needed by some of them. */
export const TASK_TOOLS = [
  "read_file",
  "glob_search",
  "content_search",
  "file_edit",
  "write_file",
  "apply_patch",
  "shell",
  "memory_store",
  "memory_recall",
  "cron_add",
] as const;
/** Name of such a tool. */
export type TaskTool = (typeof TASK_TOOLS)[number];

type Files = Readonly<Record<string, string>>;
type Check = (outcome: TaskOutcome) => boolean;

const task = (kind: TaskKind, say: string, files: Files, isDone: Check): ModelTask => ({
  kind,
  say,
  files,
  memory: {},
  isDone,
});
const told = (kind: TaskKind, say: string, files: Files, words: RegExp) =>
  task(kind, say, files, ({ reply }) => words.test(reply));
/** Task that is done when each of these files has its content, spaces at its ends aside; null: the file is gone */
const changed = (kind: TaskKind, say: string, files: Files, after: Readonly<Record<string, string | null>>) =>
  task(
    kind,
    say,
    files,
    ({ file }) => Object.entries(after).every(([path, content]) => file(path)?.trim() === content?.trim()),
  );
const kept = (say: string, words: RegExp) =>
  task("memory", say, {}, ({ memory }) => memory.some((record) => words.test(record)));
const recalled = (say: string, memory: Readonly<Record<string, string>>, words: RegExp) => ({
  ...told("memory", say, {}, words),
  memory,
});
const planned = (say: string, times: RegExp) =>
  task("schedule", say, {}, ({ schedules }) => schedules.some((record) => times.test(record)));

const SUM = "export function sum(a, b) {\n  return a - b;\n}\n";

const READ = [
  told(
    "read",
    "Which version does package.json have?",
    { "package.json": '{ "name": "sums", "version": "3.4.1" }\n' },
    /3\.4\.1/,
  ),
  told(
    "read",
    "Who wrote this project? Look into README.md.",
    { "README.md": "# Sums\n\nWritten by Grace.\n" },
    /Grace/,
  ),
  told(
    "read",
    "Read data/people.csv. How old is Alan?",
    { "data/people.csv": "name,age\nAda,36\nGrace,85\nAlan,41\n" },
    /\b41\b/,
  ),
  told("read", "Which port does config.ini set?", { "config.ini": "[server]\nport = 8123\n" }, /8123/),
  told("read", "What is due on Friday according to notes/todo.md?", {
    "notes/todo.md": "- Monday: call Ada\n- Friday: send the invoice\n",
  }, /invoice/i),
  told(
    "read",
    "What does the last line of log.txt say?",
    { "log.txt": "started\nworking\ndisk is full\n" },
    /disk is full/i,
  ),
  told(
    "read",
    "Which animal does pets.json list for Eve?",
    { "pets.json": '{ "Bob": "cat", "Eve": "parrot" }\n' },
    /parrot/i,
  ),
  told(
    "read",
    "Read docs/missing.md and tell me what it says.",
    { "docs/use.md": "# Use\n" },
    /not (?:exist|found)|no (?:such )?file|missing|does ?n.t/i,
  ),
];
const FIND = [
  told(
    "find",
    "Which file contains the word TODO?",
    { "src/old.js": "// TODO: rename\n", "src/new.js": "// done\n" },
    /old\.js/,
  ),
  told(
    "find",
    "List the Markdown files (*.md).",
    { "alpha.md": "a\n", "docs/beta.md": "b\n", "c.txt": "c\n" },
    /alpha\.md[^]*beta\.md|beta\.md[^]*alpha\.md/,
  ),
  told("find", "In which file is the function parseDate defined?", {
    "src/dates.js": "function parseDate(text) {}\n",
    "src/app.js": "start();\n",
  }, /dates\.js/),
  told(
    "find",
    "Where is the Makefile? Give its path.",
    { "tools/build/Makefile": "all:\n", "README.md": "# Sums\n" },
    /tools\/build/,
  ),
  told("find", "On which line of src/app.js is the word secretSauce?", {
    "src/app.js": "one();\ntwo();\nsecretSauce();\nfour();\n",
  }, /\b3\b|third/i),
  told("find", "How many .js files are in src?", {
    "src/a.js": "1\n",
    "src/b.js": "2\n",
    "src/c.js": "3\n",
    "src/d.css": "4\n",
  }, /\b3\b|three/i),
  told("find", "Which file names the host db.example.org?", {
    "conf/test.ini": "host = localhost\n",
    "conf/live.ini": "host = db.example.org\n",
  }, /live\.ini/),
];
const EDIT = [
  changed("edit", 'In a.txt replace "teh" by "the".', { "a.txt": "This is teh end.\n" }, {
    "a.txt": "This is the end.",
  }),
  changed("edit", "Set the version in package.json to 1.1.0.", { "package.json": '{ "version": "1.0.0" }\n' }, {
    "package.json": '{ "version": "1.1.0" }',
  }),
  changed("edit", "The function in src/sum.js must add its numbers. Mend it.", { "src/sum.js": SUM }, {
    "src/sum.js": SUM.replace("-", "+"),
  }),
  changed("edit", "Change the port in config.ini from 80 to 8080.", { "config.ini": "host = localhost\nport = 80\n" }, {
    "config.ini": "host = localhost\nport = 8080",
  }),
  changed(
    "edit",
    "Rename the constant oldName in const.js to newName.",
    { "const.js": "export const oldName = 1;\n" },
    { "const.js": "export const newName = 1;" },
  ),
  changed("edit", "Create the file hello.txt with the text: Hello, world", {}, { "hello.txt": "Hello, world" }),
  changed("edit", "Create notes/plan.md with the heading: # Plan", {}, { "notes/plan.md": "# Plan" }),
  changed("edit", 'Change the heading of README.md from "# Sums" to "# Totals".', {
    "README.md": "# Sums\n\nAdds numbers.\n",
  }, { "README.md": "# Totals\n\nAdds numbers." }),
];
const PATCH = [
  changed("patch", 'Use apply_patch to add the line "beta" after "alpha" in list.txt.', {
    "list.txt": "alpha\ngamma\n",
  }, { "list.txt": "alpha\nbeta\ngamma" }),
  changed("patch", 'Use apply_patch to remove the line "debug = true" from app.ini.', {
    "app.ini": "name = app\ndebug = true\n",
  }, { "app.ini": "name = app" }),
  changed("patch", "Use apply_patch to add the file use.md with the line: # Use", {}, { "use.md": "# Use" }),
  changed("patch", 'Use apply_patch to replace "red" by "blue" in one.txt and in two.txt.', {
    "one.txt": "red\n",
    "two.txt": "red\n",
  }, { "one.txt": "blue", "two.txt": "blue" }),
  changed("patch", "Use apply_patch to delete the file old.txt.", { "old.txt": "old\n", "new.txt": "new\n" }, {
    "old.txt": null,
    "new.txt": "new",
  }),
  changed("patch", 'Use apply_patch to change "Hi" to "Hello" in greet.js.', { "greet.js": 'console.log("Hi");\n' }, {
    "greet.js": 'console.log("Hello");',
  }),
];
const SHELL = [
  told(
    "shell",
    "Run `wc -l data.txt`. How many lines has it?",
    { "data.txt": "1\n2\n3\n4\n5\n6\n7\n" },
    /\b7\b|seven/i,
  ),
  told(
    "shell",
    "Run the script run.sh with sh. What does it print?",
    { "run.sh": "echo number $((40 + 2))\n" },
    /\b42\b/,
  ),
  told("shell", "Sort names.txt with a command. Which name is first?", { "names.txt": "Paul\nMia\nZoe\nBen\n" }, /Ben/),
  told("shell", "Count with grep how many lines of log.txt have the word error.", {
    "log.txt": "error a\ninfo\nerror b\nerror c\nwarn\n",
  }, /\b3\b|three/i),
  changed("shell", "Copy a.txt to b.txt with a command.", { "a.txt": "copied\n" }, {
    "a.txt": "copied",
    "b.txt": "copied",
  }),
  changed("shell", "Delete tmp.txt with a command.", { "tmp.txt": "t\n", "keep.txt": "k\n" }, {
    "tmp.txt": null,
    "keep.txt": "k",
  }),
  told("shell", "What does the command `echo $((6 * 7 + 100))` print? Run it.", {}, /\b142\b/),
  changed("shell", "Write the names of the files in src, sorted, to files.txt with a command.", {
    "src/b.js": "",
    "src/a.js": "",
  }, { "files.txt": "a.js\nb.js" }),
];
const MEMORY = [
  kept("Remember that my favourite colour is teal.", /teal/i),
  kept("Remember: my editor is vim.", /\bvim\b/i),
  kept("My birthday is on 4 May. Keep that in memory.", /4 May|May 4|05-04/i),
  kept("Remember that the team meets in the blue room.", /blue room|blue/i),
  recalled("What is the name of my dog? Look into your memory.", { dog: "The user's dog is called Rex" }, /Rex/),
  recalled(
    "Which train do I take to work? Look into your memory.",
    { train: "The user takes the S12 to work" },
    /S ?12/,
  ),
  recalled("What do I drink in the morning? Look into your memory.", {
    drink: "In the morning the user drinks green tea",
  }, /green tea/i),
];
const SCHEDULE = [
  planned("Add a schedule: every day at 9:00 tell me the weather.", /"0 9 \* \* \*"|(?:every day|daily) at 0?9:00/i),
  planned(
    "Add a schedule: on Mondays at 18:30 remind me to water the plants.",
    /"30 18 \* \* (?:1|mon)"|mondays? at 18:30/i,
  ),
  planned("Add a schedule: every 15 minutes check the mail.", /"\*\/15 \* \* \* \*"|every 15 min/i),
  planned("Add a schedule: every hour look how full the disk is.", /"0 \* \* \* \*"|hourly|every hour/i),
  planned("Add a schedule: on weekdays at 8:00 list my tasks.", /"0 8 \* \* (?:1-5|mon-fri)"|weekdays? at 0?8:00/i),
  planned(
    "Add a schedule: on the first day of each month at 7:00 remind me of the rent.",
    /"0 7 1 \* \*"|month at 0?7:00/i,
  ),
];

/** Takes one of each kind in turn, so that the first ones are a fair part of all. */
function inTurn(kinds: readonly (readonly ModelTask[])[]): readonly ModelTask[] {
  const longest = Math.max(...kinds.map(({ length }) => length));
  return Array.from({ length: longest }, (_, at) => kinds.flatMap((tasks) => tasks.slice(at, at + 1))).flat();
}

/** The tasks, one of each kind in turn. */
export const MODEL_TASKS = inTurn([READ, FIND, EDIT, PATCH, SHELL, MEMORY, SCHEDULE]);

/** Where a model is, in the chat-completions format. */
export interface ModelDoor {
  /** Address such as `http://127.0.0.1:43210/v1` */
  readonly baseUrl: string;
  readonly model: string;
}

/** Work of a client on a task. */
export interface Attempt {
  readonly reply: string;
  readonly calls: readonly { readonly name: string; readonly output: string }[];
  /** `done` or `stop`, else why the work ended early */
  readonly end: string;
  readonly memory: readonly string[];
  readonly schedules: readonly string[];
  /** Frames or messages, for a person who reads it */
  readonly transcript: readonly unknown[];
}
