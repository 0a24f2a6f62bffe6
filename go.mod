module github.com/spillway-mq/spillway

go 1.26

require (
	github.com/ThreeDotsLabs/watermill v1.5.3 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)
