import { MANIFEST_NAME } from "./manifest.ts";
import { type MakeScaffold, scaffoldReadme as readme, wasmManifest, wasmNotes } from "./scaffold_files.ts";

/** Makes a WASM plugin in Go. */
export const goScaffold: MakeScaffold = (names) => ({
  [MANIFEST_NAME]: wasmManifest(names),
  "README.md": readme(names, {
    build: ["GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o plugin.wasm ."],
    needs: "Go 1.24 or newer",
    notes: wasmNotes(
      "`extism.go` is the part of Extism's interface that the example needs, and the module `github.com/extism/go-pdk` has all of it. It",
      "workspace.go",
    ),
  }),
  ".gitignore": "*.wasm\n*.tar\n",
  "go.mod": `module ${names.id}\n\ngo 1.24\n`,
  "main.go": `package main

import (
	"encoding/json"
	"strings"
)

type call struct {
	Tool  string \`json:"tool"\`
	Input struct {
		Text string \`json:"text"\`
	} \`json:"input"\`
}

type answer struct {
	Output  string \`json:"output"\`
	IsError bool   \`json:"is_error,omitempty"\`
}

//go:wasmexport execute
func execute() int32 {
	var called call
	if err := json.Unmarshal(input(), &called); err != nil {
		return fail(err.Error())
	}
	text, err := json.Marshal(answer{Output: strings.ToUpper(called.Input.Text)})
	if err != nil {
		return fail(err.Error())
	}
	output(text)
	return 0
}

func main() {}
`,
  "extism.go": `package main

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoad(offset uint64) uint32

//go:wasmimport extism:host/env alloc
func alloc(length uint64) uint64

//go:wasmimport extism:host/env length
func lengthOf(offset uint64) uint64

//go:wasmimport extism:host/env load_u8
func load(offset uint64) uint32

//go:wasmimport extism:host/env store_u8
func store(offset uint64, value uint32)

//go:wasmimport extism:host/env output_set
func outputSet(offset uint64, length uint64)

//go:wasmimport extism:host/env error_set
func errorSet(offset uint64)

// input returns the call.
func input() []byte {
	bytes := make([]byte, inputLength())
	for i := range bytes {
		bytes[i] = byte(inputLoad(uint64(i)))
	}
	return bytes
}

// output makes bytes the answer.
func output(bytes []byte) {
	outputSet(keep(bytes), uint64(len(bytes)))
}

// fail makes a text the error of the call.
func fail(text string) int32 {
	errorSet(keep([]byte(text)))
	return 1
}

// keep puts bytes into Extism's memory and returns their offset.
func keep(bytes []byte) uint64 {
	offset := alloc(uint64(len(bytes)))
	for i, value := range bytes {
		store(offset+uint64(i), uint32(value))
	}
	return offset
}

// kept returns the bytes at an offset of Extism's memory.
func kept(offset uint64) []byte {
	bytes := make([]byte, lengthOf(offset))
	for i := range bytes {
		bytes[i] = byte(load(offset + uint64(i)))
	}
	return bytes
}
`,
  "workspace.go": `package main

import (
	"encoding/json"
	"errors"
)

//go:wasmimport extism:host/user workspace_read
func workspaceRead(request uint64) uint64

//go:wasmimport extism:host/user workspace_list
func workspaceList(request uint64) uint64

//go:wasmimport extism:host/user workspace_write
func workspaceWrite(request uint64) uint64

type place struct {
	Path string \`json:"path"\`
}

// entry is a file of the workspace, with its size in bytes.
type entry struct {
	Path string \`json:"path"\`
	Size int64  \`json:"size"\`
}

// readFile returns the text of a file, by its path relative to the workspace.
func readFile(path string) (string, error) {
	var answer struct {
		Content string \`json:"content"\`
	}
	err := ask(workspaceRead, place{path}, &answer)
	return answer.Content, err
}

// listFiles returns the files in a folder and in the folders below it, "." for the workspace itself.
func listFiles(path string) ([]entry, error) {
	var answer struct {
		Entries []entry \`json:"entries"\`
	}
	err := ask(workspaceList, place{path}, &answer)
	return answer.Entries, err
}

// writeFile writes a text to a file and returns its size in bytes.
func writeFile(path, content string) (int64, error) {
	request := struct {
		Path    string \`json:"path"\`
		Content string \`json:"content"\`
	}{path, content}
	var answer struct {
		Bytes int64 \`json:"bytes"\`
	}
	err := ask(workspaceWrite, request, &answer)
	return answer.Bytes, err
}

func ask(host func(uint64) uint64, request any, answer any) error {
	question, err := json.Marshal(request)
	if err != nil {
		return err
	}
	bytes := kept(host(keep(question)))
	var refusal struct {
		Error *struct {
			Message string \`json:"message"\`
		} \`json:"error"\`
	}
	if err := json.Unmarshal(bytes, &refusal); err != nil {
		return err
	}
	if refusal.Error != nil {
		return errors.New(refusal.Error.Message)
	}
	return json.Unmarshal(bytes, answer)
}
`,
});
