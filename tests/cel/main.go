// The CEL judge: Kubernetes' own expression language beside ours.
//
// Without arguments it answers cases from standard input, one JSON object per line. With
// "judge -subject SUBJECT" it gives the same cases to the program SUBJECT and compares. "bench"
// measures both sides, "generate" prints generated expressions.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "judge":
			os.Exit(judge(os.Args[2:]))
		case "bench":
			os.Exit(bench(os.Args[2:]))
		case "generate":
			os.Exit(generate(os.Args[2:]))
		}
	}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 64<<20)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	encoder.SetEscapeHTML(false)
	for input.Scan() {
		var question Case
		if err := json.Unmarshal(input.Bytes(), &question); err != nil {
			question = Case{}
			encoder.Encode(Answer{Crash: err.Error()})
		} else {
			encoder.Encode(ask(question))
		}
		output.Flush()
	}
	if err := input.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
