// A server of the official Go SDK whose tools count; see package count.
//
//	gosdk_server            over stdio
//	gosdk_server --http     over Streamable HTTP; its URL is the first line on standard output
package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"semel.test/clients/count"
)

type arguments struct {
	To string `json:"to"`
	Ms int    `json:"ms,omitempty"`
}

func call(_ context.Context, request *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, any, error) {
	said := count.Said(request.Params.Name, args.To, args.Ms)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}, nil, nil
}

type placed struct {
	Order  string `json:"order"`
	Number int    `json:"number"`
}

func order(_ context.Context, request *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, placed, error) {
	return nil, placed{args.To, count.Call(request.Params.Name, args.To, args.Ms)}, nil
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "counting", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "pay", Description: "Pays somebody."}, call)
	mcp.AddTool(server, &mcp.Tool{Name: "transfer", Description: "Pays somebody a lot."}, call)
	mcp.AddTool(server, &mcp.Tool{Name: "order", Description: "Orders something. It has an output schema."}, order)
	mcp.AddTool(server, &mcp.Tool{
		Name: "look", Description: "Looks at something and changes nothing.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, call)
	var err error
	if len(os.Args) > 1 && os.Args[1] == "--http" {
		err = count.Listen(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	} else {
		err = server.Run(context.Background(), &mcp.StdioTransport{})
	}
	if err != nil {
		log.Print(err)
	}
}
