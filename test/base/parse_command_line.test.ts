import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { parseCommandLine } from "../../lib/base/parse_command_line.ts";
import { runRecorded } from "../support/recorded_bash.ts";
import { processorMs } from "../support/processor_time.ts";

/** Returns the words of each part, `?` for one that is not known, with the files behind `<` or `>`. */
const partsOf = (line: string) =>
  parseCommandLine(line).parts.map(({ words, files }) =>
    [
      ...words.map((word) => word ?? "?"),
      ...files.map(({ path = "?", writes }) => `${writes ? ">" : "<"}${path}`),
    ].join(" ")
  );

test("the parts of a line are its simple commands, with the files that they are redirected to", () => {
  for (
    const [line, parts] of [
      ["ls -l 'a b'", ["ls -l a b"]],
      ["git log | head -5 && npm test; echo done & wait", ["git log", "head -5", "npm test", "echo done", "wait"]],
      ["a |& b || c\nd", ["a", "b", "c", "d"]],
      ["cat < in > out 2>> err", ["cat <in >out >err"]],
      ["make &> log; make >& log; make >| log; make <> log", Array(4).fill("make >log")],
      ["ls 2>&1 >&2 2>&- | cat", ["ls", "cat"]],
      ["> empty", [">empty"]],
      ["ls 99999999999> out 9> all", ["ls 99999999999 >out >all"]],
      ["cat <<E | wc\nls; $name\nE\npwd", ["cat", "wc", "pwd"]],
      ["cat <<-'E'\n\t$(ls)`ls`\n\tE\npwd", ["cat", "pwd"]],
      ['cat <<< "$(ls)"', ["ls", "cat"]],
      ["echo *.ts $a \"$b\" ~/x {a,b} [ab] HEAD~1 {} a] '*'", ["echo ? ? ? ? ? ? HEAD~1 {} a] *"]],
      ['echo "a $(git log | head) b"', ["git log", "head", "echo ?"]],
      ["x=$(ls); CI=1 npm test $x", ["ls", "npm test ?"]],
      ['for f in *.ts; do wc -l "$f"; done > out', ["wc -l ?", ">out"]],
      ['if [ -f "$x" ]; then ls; else pwd; fi', ["[ -f ? ]", "ls", "pwd"]],
      ["( cd src && ls ) | { cat; }", ["cd src", "ls", "cat"]],
      ['while read -r line; do echo "$line"; done < list', ["read -r line", "echo ?", "<list"]],
      ["set -euo pipefail; ! test -d x # ls; rm", ["set -euo pipefail", "test -d x"]],
      ["ls \\\n  -l", ["ls -l"]],
      ['ls a\\ b\\;c a"b"\'c\' "$" a$', ["ls a b;c abc $ a$"]],
      ["'if' x; \"a\"=b", ["if x", "a=b"]],
      ["echo ${x:-a b} ${y%.ts} $1 $?", ["echo ? ? ? ?"]],
    ] as const
  ) {
    const { asks } = parseCommandLine(line);
    assert.deepEqual([asks, partsOf(line)], [undefined, parts], line);
  }
});

test("whatever is not understood asks, and says why", () => {
  for (
    const [line, reason] of [
      ["$cmd x", /which program "\$cmd" is/],
      ["l* x", /which program/],
      ["$(cat x) y", /which program/],
      ["eval ls", /"eval" of bash/],
      [". ./x", /"\." of bash/],
      ["source x; ls", /"source" of bash/],
      ["exec ls", /"exec"/],
      ["alias ls=rm", /"alias"/],
      ["trap ls EXIT", /"trap"/],
      ["time ls", /"time"/],
      ["command ls", /"command"/],
      ["printf -v PATH x", /"printf"/],
      ["printf $x", /"printf"/],
      ["test -v 'a[$(ls)]'", /"test"/],
      ["[ -n $x ]", /"\["/],
      ["[ $x ]", /"\["/],
      ['[ "$x" "$y" ]', /"\["/],
      ["read PATH", /"read"/],
      ["set -a", /"set"/],
      ["PATH=. ls", /sets PATH/],
      ["PATH=.", /sets PATH/],
      ["x=1 ls", /sets x/],
      ["http_proxy=x", /sets http_proxy/],
      ["for PATH in .; do ls; done", /sets "PATH"/],
      ["a=(1 2)", /sets a to a list/],
      ["a[$(ls)]=1", /sets a to a list/],
      ["ls {PATH}> x", /sets a variable/],
      ["echo `ls`", /backtick/],
      ['echo "`ls`"', /backtick/],
      ["echo $((a[1]))", /computes/],
      ["((x))", /computes/],
      ["echo ${x@P}", /is not understood/],
      ["echo ${x:=y}", /is not understood/],
      ["echo ${!x}", /is not understood/],
      ["echo ${x:-$(ls)}", /is not understood/],
      ["echo $'a'", /is not understood/],
      ["cat <(ls)", /process takes/],
      ["f() { ls; }", /"\(" stands behind a word/],
      ["function f { ls; }", /"function"/],
      ["case a in a) ls;; esac", /"case"/],
      ["[[ a == b ]]", /"\[\["/],
      ["ls;; pwd", /";;"/],
      ["ls )", /closes nothing/],
      ["( ls", /is not closed/],
      ["echo $(ls", /is not closed/],
      ["echo 'a", /quote ' is not closed/],
      ['echo "a', /quote " is not closed/],
      ["ls \\", /backslash/],
      ["l\\\ns", /backslash/],
      ["ls >", /names no file/],
      ["ls > $(pwd) <&$x", /known only when it runs/],
      ["ls > /dev/tcp/h/1", /is a connection/],
      ["ls >& -a", /known only when it runs/],
      ["ls 2>&-a", /known only when it runs/],
      ["cat <<E\n$(ls)\nE", /here-document E/],
      ["cat <<E\na\\\nE\nls\nE", /here-document E/],
      ["cat <<E\nls", /has no end/],
      ["cat <<E", /here-document/],
      ["cat <<E 'a\nE\n'\nE", /here-document/],
      ['cat <<"E"x\nE', /here-document/],
      ["ls\r", /control character/],
      ["ls \ud800", /control character/],
      ["echo " + "$(echo ".repeat(9) + ")".repeat(9), /more than 8 deep/],
      ["ls;".repeat(300), /more than 256 parts/],
      [`ls ${"> a ".repeat(300)}`, /redirected more than 256 times/],
      [`ls ${"a ".repeat(8_192)}`, /more than 8192 words/],
    ] as const
  ) {
    assert.match(parseCommandLine(line).asks ?? "nothing", reason, line);
  }
  // Commands before the unknown word are known all the same
  assert.deepEqual(partsOf("rm x; eval ls; f() {"), ["rm x", "eval ls"]);
});

test("a line of any length is read in a time that grows with its length", () => {
  for (const piece of ["a~", "{", "[", "'a'", '"$a"', "$(", "a ", "(", "{,", "<<E ", "\\\n ", "#", "${a:-"]) {
    const line = `echo ${piece.repeat(131_072 / piece.length)}`;
    const from = processorMs();
    parseCommandLine(line);
    const took = processorMs() - from;
    assert.ok(took < 2000, `${JSON.stringify(piece)}: ${took} ms`);
  }
});

test("bash runs no command and writes no file that the parts do not name", async () => {
  const { judged, ran, wider } = await runRecorded(120, 4);
  assert.deepEqual(wider, []);
  assert.ok(judged > 40 && ran > 60, `${judged} lines were judged, ${ran} commands ran`);
});

test("every builtin and keyword of bash is known", async () => {
  const child = spawn("/bin/bash", ["--noprofile", "--norc", "-c", "compgen -b; compgen -k"]);
  for (const name of (await text(child.stdout)).split("\n").filter((each) => each !== "")) {
    const harmless = [
      ...":[!{}",
      "cd",
      "echo",
      "exit",
      "false",
      "pwd",
      "true",
      "break",
      "continue",
      "wait",
      "test",
      "for",
      "in",
      "read",
      "]]",
    ];
    const keywords = ["if", "then", "elif", "else", "fi", "while", "until", "do", "done"];
    if ([...harmless, ...keywords].includes(name)) continue;
    assert.notEqual(parseCommandLine(name).asks, undefined, name);
  }
});
