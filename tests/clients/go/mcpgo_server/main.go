// A server of mark3labs/mcp-go whose tools count; see package count.
//
//	mcpgo_server            over stdio
//	mcpgo_server --http     over Streamable HTTP; its URL is the first line on standard output
package main

import (
	"context"
	"log"
	"os"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"semel.test/clients/count"
)

func call(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	said := count.Said(request.Params.Name, request.GetString("to", ""), request.GetInt("ms", 0))
	return mcp.NewToolResultText(said), nil
}

type arguments struct {
	To string `json:"to"`
	Ms int    `json:"ms,omitempty"`
}

type placed struct {
	Order  string `json:"order"`
	Number int    `json:"number"`
}

func order(_ context.Context, request mcp.CallToolRequest, args arguments) (placed, error) {
	return placed{args.To, count.Call(request.Params.Name, args.To, args.Ms)}, nil
}

func main() {
	counting := server.NewMCPServer("counting", "1", server.WithToolCapabilities(true))
	to, ms := mcp.WithString("to", mcp.Required()), mcp.WithNumber("ms")
	counting.AddTool(mcp.NewTool("pay", mcp.WithDescription("Pays somebody."), to, ms), call)
	counting.AddTool(mcp.NewTool("transfer", mcp.WithDescription("Pays somebody a lot."), to, ms), call)
	counting.AddTool(mcp.NewTool("order", mcp.WithDescription("Orders something. It has an output schema."),
		mcp.WithOutputSchema[placed](), to, ms), mcp.NewStructuredToolHandler(order))
	counting.AddTool(mcp.NewTool("look", mcp.WithDescription("Looks at something and changes nothing."),
		mcp.WithReadOnlyHintAnnotation(true), to, ms), call)
	var err error
	if len(os.Args) > 1 && os.Args[1] == "--http" {
		err = count.Listen(server.NewStreamableHTTPServer(counting))
	} else {
		err = server.ServeStdio(counting)
	}
	if err != nil {
		log.Print(err)
	}
}
