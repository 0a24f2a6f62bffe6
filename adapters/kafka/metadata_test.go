package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/spillway-mq/spillway/adapters/kafka"
)

// A cluster that takes less metadata than Kafka's default gets what fits: positions
// go on, and only what was finished far above them comes again.
func TestClusterThatTakesLittleMetadata(t *testing.T) {
	t.Parallel()
	const most = 400
	cluster, rawURL := fakeCluster(t, nil)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		commit := req.(*kmsg.OffsetCommitRequest)
		resp := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
		refused := false
		for _, topic := range commit.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition = p.Partition
				if p.Metadata != nil && len(*p.Metadata) > most {
					refused, rp.ErrorCode = true, 12 // OFFSET_METADATA_TOO_LARGE
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, refused
	})
	b := setup(t, rawURL, kafka.Config{})
	c := b.consumer(8)
	const n = 4000
	b.publish(c.Topic, n)
	s := b.SubscribeOn(b.Broker, c)
	left := map[string]bool{}
	for range n {
		if d := b.Next(s); d.ID != "m-00000" && d.ID != "m-03999" { // the bitmap spans all
			b.Ack(d)
		} else {
			left[d.ID] = true
		}
	}
	b.Close(s)
	s = b.SubscribeOn(b.open(), c)
	again := 0
	for end := time.After(patience); len(left) > 0; again++ {
		select {
		case d := <-s.Deliveries():
			delete(left, d.ID)
			b.Ack(d)
		case <-end:
			t.Fatalf("not delivered: %v", left)
		}
	}
	t.Logf("%d of %d came again", again-2, n)
	if again > n-1000 {
		t.Errorf("%d of %d came again, want what the metadata has no room for", again, n)
	}
	b.Quiet(s, time.Second)
}
