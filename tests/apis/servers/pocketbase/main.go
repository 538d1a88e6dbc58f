// PocketBase with the machine's SQLite: the one that it brings takes a minute to compile.
package main

import (
	"database/sql"
	"log"

	"github.com/mattn/go-sqlite3"
	"github.com/pocketbase/dbx"
	"github.com/pocketbase/pocketbase"
)

func init() {
	sql.Register("pb_sqlite3", &sqlite3.SQLiteDriver{
		ConnectHook: func(conn *sqlite3.SQLiteConn) error {
			_, err := conn.Exec(`PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL;
				PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;`, nil)
			return err
		},
	})
	dbx.BuilderFuncMap["pb_sqlite3"] = dbx.BuilderFuncMap["sqlite3"]
}

func main() {
	app := pocketbase.NewWithConfig(pocketbase.Config{
		DBConnect: func(path string) (*dbx.DB, error) { return dbx.Open("pb_sqlite3", path) },
	})
	if err := app.Start(); err != nil {
		log.Fatal(err)
	}
}
