// A client of the official Go SDK that takes commands; see package drive.
package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"semel.test/clients/drive"
)

type client struct{ session *mcp.ClientSession }

// signed adds headers to requests.
type signed map[string]string

func (s signed) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name, value := range s {
		request.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(request)
}

func (c *client) Open(ctx context.Context, target *drive.Target) (err error) {
	var transport mcp.Transport
	if target.URL != "" {
		transport = &mcp.StreamableClientTransport{
			Endpoint: target.URL, HTTPClient: &http.Client{Transport: signed(target.Headers)},
		}
	} else {
		command := exec.Command(target.Command[0], target.Command[1:]...)
		command.Env, command.Stderr = target.Environ(), os.Stderr
		transport = &mcp.CommandTransport{Command: command}
	}
	c.session, err = mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil).Connect(ctx, transport, nil)
	return err
}

func (c *client) Call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return "", err
	}
	var texts []string
	for _, item := range result.Content {
		switch item := item.(type) {
		case *mcp.TextContent:
			texts = append(texts, item.Text)
		case *mcp.EmbeddedResource:
			texts = append(texts, item.Resource.Text)
		}
	}
	return strings.Join(texts, "\n"), nil
}

func (c *client) Close() error { return c.session.Close() }

func main() { drive.Run(&client{}) }
