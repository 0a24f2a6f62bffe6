package middleware_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway/middleware"
)

func ExampleOnce() {
	store, err := middleware.NewMemoryStore(middleware.MemoryStoreConfig{})
	if err != nil {
		panic(err)
	}
	charge := func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("charge", string(msg.Payload))
		return []*message.Message{message.NewMessage(watermill.NewShortUUID(), []byte("receipt"))}, nil
	}
	h := middleware.Once(store, nil)(charge) // or router.AddMiddleware(middleware.Once(store, nil))

	msg := message.NewMessage("m-1", []byte("10 EUR"))
	first, err := h(msg)
	if err != nil {
		panic(err)
	}
	// Publishing the receipt fails, and so the message comes again.
	second, err := h(msg)
	if err != nil {
		panic(err)
	}
	fmt.Println("same receipt:", first[0].Equals(second[0]))
	// Output:
	// charge 10 EUR
	// same receipt: true
}

func ExampleNewSQLStore() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "once")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE charges (cents INTEGER)`); err != nil {
		panic(err)
	}

	store, err := middleware.NewSQLStore(db, middleware.SQLStoreConfig{Dialect: middleware.DialectSQLite})
	if err != nil {
		panic(err)
	}
	if err := store.EnsureSchema(ctx); err != nil {
		panic(err)
	}
	attempt := 0
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
		tx, ok := middleware.TxFrom(msg.Context())
		if !ok {
			return nil, fmt.Errorf("no transaction")
		}
		if _, err := tx.ExecContext(msg.Context(), `INSERT INTO charges (cents) VALUES (1000)`); err != nil {
			return nil, err
		}
		if attempt++; attempt == 1 {
			return nil, fmt.Errorf("gateway is down") // rolls the charge back
		}
		return nil, nil
	})
	for range 3 {
		_, err := h(message.NewMessage("m-1", nil))
		fmt.Println(err)
	}
	var charges int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM charges`).Scan(&charges); err != nil {
		panic(err)
	}
	fmt.Println("charges:", charges)
	// Output:
	// gateway is down
	// <nil>
	// <nil>
	// charges: 1
}
