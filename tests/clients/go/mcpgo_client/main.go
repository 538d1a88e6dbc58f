// A client of mark3labs/mcp-go that takes commands; see package drive.
package main

import (
	"context"
	"strings"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"semel.test/clients/drive"
)

type client struct{ inner *mcpclient.Client }

func (c *client) Open(ctx context.Context, target *drive.Target) (err error) {
	if target.URL != "" {
		c.inner, err = mcpclient.NewStreamableHttpClient(target.URL, transport.WithHTTPHeaders(target.Headers))
		if err == nil {
			err = c.inner.Start(ctx)
		}
	} else {
		c.inner, err = mcpclient.NewStdioMCPClient(target.Command[0], target.Environ(), target.Command[1:]...)
	}
	if err != nil {
		return err
	}
	request := mcp.InitializeRequest{}
	request.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	request.Params.ClientInfo = mcp.Implementation{Name: "mcp-go", Version: "1"}
	_, err = c.inner.Initialize(ctx, request)
	return err
}

func (c *client) Call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	request := mcp.CallToolRequest{}
	request.Params.Name = tool
	request.Params.Arguments = arguments
	result, err := c.inner.CallTool(ctx, request)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, item := range result.Content {
		switch item := item.(type) {
		case mcp.TextContent:
			texts = append(texts, item.Text)
		case mcp.EmbeddedResource:
			if text, ok := item.Resource.(mcp.TextResourceContents); ok {
				texts = append(texts, text.Text)
			}
		}
	}
	return strings.Join(texts, "\n"), nil
}

func (c *client) Close() error { return c.inner.Close() }

func main() { drive.Run(&client{}) }
