// Command standin takes the place of a server that is not the subject of a check: it takes any
// arguments and answers every request with success, on the port of Prometheus or one that is named.
package main

import (
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	listen := ":9090"
	for _, argument := range os.Args[1:] {
		if value, found := strings.CutPrefix(argument, "--listen="); found {
			listen = value
		}
	}
	http.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe(listen, nil))
}
