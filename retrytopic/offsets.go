package retrytopic

import "math/bits"

// MaxSpan is how far finished offsets may lie above the lowest unfinished one:
// so many fit the metadata of a commit, of which Kafka takes 4,096 bytes.
const MaxSpan = 16_384

// Offsets are the finished offsets of a partition, of which those below the
// mark are not remembered one by one. Not safe for concurrent use.
type Offsets struct {
	mark int64    // the lowest that is not finished
	next int64    // one above the highest that was read
	base int64    // the offset of the first bit; a multiple of 64, at most mark
	bits []uint64 // finished, from base on
}

// NewOffsets returns offsets of which those below mark are finished.
func NewOffsets(mark int64) *Offsets {
	return &Offsets{mark: mark, next: mark, base: mark &^ 63}
}

// Mark is the lowest offset that is not finished.
func (o *Offsets) Mark() int64 { return o.mark }

// Span is how many offsets lie between the mark and the highest that was read.
func (o *Offsets) Span() int { return int(o.next - o.mark) }

// Fits reports whether an offset may be read: whether it could be remembered as
// finished above the present mark.
func (o *Offsets) Fits(offset int64) bool {
	return o.next == o.mark || offset-o.mark < MaxSpan
}

// Read notes that an offset was read, in ascending order or from the mark on
// once more, and reports whether it is still to be processed. Offsets that were
// left out do not exist, and are finished. The offset must fit.
func (o *Offsets) Read(offset int64) bool {
	switch {
	case offset < o.mark:
		return false
	case offset < o.next:
		return !o.has(offset)
	case offset-o.mark >= MaxSpan: // nothing is remembered that far below
		o.mark, o.next, o.base, o.bits = offset, offset+1, offset&^63, nil
		return true
	}
	for gap := o.next; gap < offset; gap++ {
		o.set(gap)
	}
	o.next = offset + 1
	fresh := !o.has(offset)
	o.advance()
	return fresh
}

// Finish notes that an offset is finished.
func (o *Offsets) Finish(offset int64) {
	if offset < o.mark || offset-o.mark >= MaxSpan {
		return
	}
	o.set(offset)
	if offset == o.mark {
		o.advance()
	}
}

// Finished reports whether an offset is finished.
func (o *Offsets) Finished(offset int64) bool { return offset < o.mark || o.has(offset) }

// Above is how many offsets above the mark are finished.
func (o *Offsets) Above() (n int) {
	for i, word := range o.bits {
		if i == 0 {
			word &= ^uint64(0) << uint(o.mark-o.base)
		}
		n += bits.OnesCount64(word)
	}
	return n
}

func (o *Offsets) has(offset int64) bool {
	i := (offset - o.base) / 64
	return i >= 0 && i < int64(len(o.bits)) && o.bits[i]&(1<<uint(offset&63)) != 0
}

func (o *Offsets) set(offset int64) {
	i := int((offset - o.base) / 64)
	for len(o.bits) <= i {
		o.bits = append(o.bits, 0)
	}
	o.bits[i] |= 1 << uint(offset&63)
}

// advance moves the mark over what is finished, as far as it was read.
func (o *Offsets) advance() {
	for o.mark < o.next && o.has(o.mark) {
		o.mark++
	}
	if drop := int((o.mark - o.base) / 64); drop > 0 {
		o.base += int64(drop) * 64
		if drop >= len(o.bits) {
			o.bits = o.bits[:0]
		} else {
			o.bits = o.bits[:copy(o.bits, o.bits[drop:])]
		}
	}
}

// bitmap is the finished offsets from the mark on, the lowest bit first,
// without trailing zeros.
func (o *Offsets) bitmap() []byte {
	var out []byte
	shift := uint(o.mark - o.base)
	for i := range o.bits {
		word := o.bits[i] >> shift
		if shift > 0 && i+1 < len(o.bits) {
			word |= o.bits[i+1] << (64 - shift)
		}
		for b := range 8 {
			out = append(out, byte(word>>(8*b)))
		}
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	return out
}

// offsetsOf is the opposite of bitmap.
func offsetsOf(mark int64, bitmap []byte) *Offsets {
	o := NewOffsets(mark)
	for i, b := range bitmap {
		for ; b != 0; b &= b - 1 {
			o.set(mark + int64(i)*8 + int64(bits.TrailingZeros8(b)))
		}
	}
	return o
}
