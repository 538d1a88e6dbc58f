// Package count is what the servers' tools do: they count.
package count

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func add(name, line string) {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintln(file, line)
}

// Call adds a line, the tool's name and its argument, to the file that SEMEL_COUNT names. It returns
// after ms milliseconds, and tells how many lines there were. The file whose name ends in .pids has
// the process beside each line, and the one that ends in .over has the lines of calls that returned.
func Call(tool, text string, ms int) int {
	name, line := os.Getenv("SEMEL_COUNT"), tool+" "+text
	add(name+".pids", fmt.Sprint(os.Getpid(), " ", line))
	add(name, line)
	all, err := os.ReadFile(name)
	if err != nil {
		panic(err)
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	add(name+".over", line)
	return strings.Count(string(all), "\n")
}

// Said is the text of an answer.
func Said(tool, text string, ms int) string {
	return fmt.Sprintf("%s %s, call %d", tool, text, Call(tool, text, ms))
}

// Listen serves HTTP on a port that is free. The URL is the first line on standard output.
func Listen(handler http.Handler) error {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", door.Addr())
	return http.Serve(door, handler)
}
