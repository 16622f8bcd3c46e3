// SPDX-License-Identifier: GPL-2.0
/* See core.h. What a fragment of a common datagram costs is there; here is what happens rarely, or once a datagram. */
#include "core.h"

/* Units of 8 bytes: 8,192 in a datagram, 512 in a chunk. */
#define UNITS_CHUNK 512
#define UNITS_CHUNKS 16

struct core_bits {
	u64 covered[UNITS_CHUNK / 64];
	u64 start[UNITS_CHUNK / 64];
};

struct core_units {
	struct core_packet *list;	/* newest first */
	struct core_bits *chunk[UNITS_CHUNKS];
};

static void *core_alloc(struct core *core, size_t size)
{
	void *memory = plain_zalloc(size);

	if (memory)
		core->memory += size;
	return memory;
}

static bool has_table(const struct core *core)
{
	return core->table != core->own;
}

/* The slots that a table has room for. */
static u32 room(const struct core *core)
{
	return has_table(core) ? CORE_TABLE * CORE_CHUNK : CORE_DIRECT;
}

/* See core_insert(): what may go to its slot without a further look. */
static void set_limit(struct core *core)
{
	u32 limit = CORE_MOST / core->size;	/* 0 without a size */

	if (core->last)
		limit = min(limit, piece_of(core->last)->offset / core->size);
	core->limit = min(limit, room(core));
}

/* The slot of an index, made if need be; NULL without memory, and for what no table holds: see has_slot(). */
static struct core_packet **slot_of(struct core *core, u32 index)
{
	struct core_packet ***table, **chunk;

	if (index >= room(core)) {
		table = core_alloc(core, CORE_TABLE * sizeof(*table));
		if (!table)
			return NULL;
		chunk = core_alloc(core, CORE_CHUNK * sizeof(*chunk));
		if (!chunk) {
			plain_free(table);
			core->memory -= CORE_TABLE * sizeof(*table);
			return NULL;
		}
		memcpy(chunk, core->direct, sizeof(core->direct));
		table[0] = chunk;
		core->table = table;
		set_limit(core);
	}
	chunk = core->table[index / CORE_CHUNK];
	if (!chunk) {
		chunk = core_alloc(core, CORE_CHUNK * sizeof(*chunk));
		if (!chunk)
			return NULL;
		core->table[index / CORE_CHUNK] = chunk;
	}
	return &chunk[index % CORE_CHUNK];
}

static bool has_slot(const struct core *core, u32 offset)
{
	return offset % core->size == 0 && offset / core->size < CORE_TABLE * CORE_CHUNK;
}

static void put_down(struct core_packet *packet, u32 offset, u32 length)
{
	piece_of(packet)->offset = offset;
	piece_of(packet)->length = length;
}

/* Puts all packets of the slots, and a last one that has none, before `list`. Gives the slots' memory back. */
static struct core_packet *take_slots(struct core *core, struct core_packet *list)
{
	u32 chunks = has_table(core) ? CORE_TABLE : 1, slots = has_table(core) ? CORE_CHUNK : CORE_DIRECT, i, j;

	if (core->last && core->size == CORE_NO_SIZE) {
		core->last->next = list;
		list = core->last;
	}
	for (i = 0; i < chunks; i++) {
		struct core_packet **chunk = core->table[i];

		for (j = 0; chunk && j < slots; j++) {
			if (!chunk[j])
				continue;
			chunk[j]->next = list;
			list = chunk[j];
		}
		if (has_table(core) && chunk) {
			plain_free(chunk);
			core->memory -= CORE_CHUNK * sizeof(*chunk);
		}
	}
	if (has_table(core)) {
		plain_free(core->table);
		core->memory -= CORE_TABLE * sizeof(*core->table);
		core->table = core->own;
	}
	core->limit = 0;
	return list;
}

/* The bits of one word of 64 units that lie within [first, end). */
static u64 mask_of(u32 word, u32 first, u32 end)
{
	u32 from = word * 64, to = from + 64;
	u64 mask = ~0ULL;

	if (first > from)
		mask &= ~0ULL << (first - from);
	if (end < to)
		mask &= ~0ULL >> (to - end);
	return mask;
}

static const struct core_bits *bits_at(const struct core_units *units, u32 unit)
{
	return unit / UNITS_CHUNK < UNITS_CHUNKS ? units->chunk[unit / UNITS_CHUNK] : NULL;
}

static bool is_covered(const struct core_units *units, u32 unit)
{
	const struct core_bits *bits = bits_at(units, unit);

	return bits && bits->covered[unit % UNITS_CHUNK / 64] >> (unit % 64) & 1;
}

static bool is_start(const struct core_units *units, u32 unit)
{
	const struct core_bits *bits = bits_at(units, unit);

	return bits && bits->start[unit % UNITS_CHUNK / 64] >> (unit % 64) & 1;
}

/* What of [first, end) is there. `exactly`: it is, and it is one fragment. */
static bool any_covered(const struct core_units *units, u32 first, u32 end, bool *exactly)
{
	bool any = false, all = true, cut = false;
	u32 word;

	for (word = first / 64; word * 64 < end; word++) {
		const struct core_bits *bits = bits_at(units, word * 64);
		u64 mask = mask_of(word, first, end), covered = bits ? bits->covered[word % (UNITS_CHUNK / 64)] : 0;
		u64 start = bits ? bits->start[word % (UNITS_CHUNK / 64)] : 0;

		if (word == first / 64)
			start &= ~(1ULL << (first % 64));
		any |= (covered & mask) != 0;
		all &= (covered & mask) == mask;
		cut |= (start & mask) != 0;
	}
	*exactly = all && !cut && is_start(units, first) && (!is_covered(units, end) || is_start(units, end));
	return any;
}

/* Room for the bits first; then they are set. */
static bool cover(struct core *core, u32 first, u32 end)
{
	struct core_units *units = core->units;
	u32 i, word;

	for (i = first / UNITS_CHUNK; i * UNITS_CHUNK < end; i++) {
		if (!units->chunk[i])
			units->chunk[i] = core_alloc(core, sizeof(*units->chunk[i]));
		if (!units->chunk[i])
			return false;
	}
	for (word = first / 64; word * 64 < end; word++)
		units->chunk[word * 64 / UNITS_CHUNK]->covered[word % (UNITS_CHUNK / 64)] |= mask_of(word, first, end);
	units->chunk[first / UNITS_CHUNK]->start[first % UNITS_CHUNK / 64] |= 1ULL << (first % 64);
	return true;
}

static u32 units_end(u32 offset, u32 length)
{
	return DIV_ROUND_UP(offset + length, 8);
}

static bool units_put(struct core *core, struct core_packet *packet)
{
	const struct piece *piece = piece_of(packet);

	if (!cover(core, piece->offset / 8, units_end(piece->offset, piece->length)))
		return false;
	packet->next = core->units->list;
	core->units->list = packet;
	return true;
}

/* From slots to units. Without memory, the datagram is lost, and its packets are in the list, so that core_take() finds them. */
static bool change_over(struct core *core)
{
	struct core_packet *list, *next;
	bool done = true;

	core->units = core_alloc(core, sizeof(*core->units));
	if (!core->units)
		return false;
	list = take_slots(core, NULL);
	for (; list; list = next) {
		next = list->next;
		if (done)
			done = units_put(core, list);
		if (!done) {
			list->next = core->units->list;
			core->units->list = list;
		}
	}
	return done;
}

static void count(struct core *core, struct core_packet *packet, u32 offset, u32 length, bool more)
{
	core->bytes += length;
	if (offset + length > core->top)
		core->top = offset + length;
	if (!more) {
		core->last = packet;
		core->end = offset + length;
	}
}

static enum core_verdict units_insert(struct core *core, struct core_packet *packet, u32 offset, u32 length, bool more)
{
	bool exactly;

	if (any_covered(core->units, offset / 8, units_end(offset, length), &exactly)) {
		/* The last fragment is another one, even where it covers the same bytes. */
		if (core->last && piece_of(core->last)->offset == offset)
			exactly = false;
		return more && exactly ? CORE_DUPLICATE : CORE_OVERLAP;
	}
	put_down(packet, offset, length);
	return units_put(core, packet) ? CORE_HELD : CORE_NO_MEMORY;
}

static enum core_verdict slots_insert(struct core *core, struct core_packet *packet, u32 offset, u32 length)
{
	struct core_packet **slot = slot_of(core, offset / core->size);

	if (!slot)
		return CORE_NO_MEMORY;
	if (*slot)
		/* With more to come on both sides, it has this size and this place, so it is the same fragment. */
		return *slot != core->last && length == core->size ? CORE_DUPLICATE : CORE_OVERLAP;
	put_down(packet, offset, length);
	*slot = packet;
	return CORE_HELD;
}

/* The first fragment with a successor says how long they are. The last one may have been there before it. */
static enum core_verdict first_size(struct core *core, u32 length)
{
	struct core_packet **slot, *last = core->last;

	core->size = length;
	if (!last)
		return CORE_HELD;
	if (!has_slot(core, piece_of(last)->offset) || piece_of(last)->length > length) {
		core->size = CORE_NO_SIZE;	/* so that take_slots() looks for it */
		return change_over(core) ? CORE_HELD : CORE_NO_MEMORY;
	}
	slot = slot_of(core, piece_of(last)->offset / length);
	if (!slot) {
		core->size = CORE_NO_SIZE;
		return CORE_NO_MEMORY;
	}
	*slot = last;
	return CORE_HELD;
}

/* What no fragment of this datagram may be, whatever holds them. */
static enum core_verdict check(const struct core *core, u32 offset, u32 length, bool more)
{
	u32 end = offset + length;

	if (!length || (more && length % 8))
		return CORE_BAD_LENGTH;
	if (end > CORE_MOST)
		return CORE_BAD_END;
	if (core->last && !more) {
		const struct piece *last = piece_of(core->last);

		if (end != core->end)
			return CORE_BAD_END;
		return last->offset == offset ? CORE_DUPLICATE : CORE_OVERLAP;
	}
	if (core->last && end > core->end)
		return CORE_BAD_END;
	if (!more && end < core->top)
		return CORE_BAD_END;
	if (!more && offset < core->top)
		return CORE_OVERLAP;
	return CORE_HELD;
}

static enum core_verdict put(struct core *core, struct core_packet *packet, u32 offset, u32 length, bool more)
{
	enum core_verdict verdict;

	if (!core->units && core->size == CORE_NO_SIZE) {
		if (!more) {
			put_down(packet, offset, length);
			return CORE_HELD;
		}
		verdict = first_size(core, length);
		if (verdict != CORE_HELD)
			return verdict;
	}
	if (!core->units && ((more && length != core->size) || length > core->size || !has_slot(core, offset)) &&
	    !change_over(core))
		return CORE_NO_MEMORY;
	if (core->units)
		return units_insert(core, packet, offset, length, more);
	return slots_insert(core, packet, offset, length);
}

enum core_verdict core_insert_slowly(struct core *core, struct core_packet *packet, u32 offset, u32 length, bool more)
{
	enum core_verdict verdict = check(core, offset, length, more);

	if (verdict == CORE_HELD)
		verdict = put(core, packet, offset, length, more);
	if (verdict != CORE_HELD)
		return verdict;
	count(core, packet, offset, length, more);
	if (!core->units)
		set_limit(core);
	return core->bytes == core->end ? CORE_WHOLE : CORE_HELD;
}

/* Sorts by offset, by its digits to the base of 32, lowest first. Stable, and n steps each, however the list is. */
static struct core_packet *sorted(struct core_packet *list)
{
	u32 shift, i;

	for (shift = 3; shift < 16; shift += 5) {
		struct core_packet *first[32] = { NULL }, **end[32], *next;

		for (i = 0; i < ARRAY_SIZE(end); i++)
			end[i] = &first[i];
		for (; list; list = next) {
			next = list->next;
			i = piece_of(list)->offset >> shift & 31;
			list->next = NULL;
			*end[i] = list;
			end[i] = &list->next;
		}
		for (i = ARRAY_SIZE(end); i--; ) {
			if (!first[i])
				continue;
			*end[i] = list;
			list = first[i];
		}
	}
	return list;
}

static void units_free(struct core *core)
{
	u32 i;

	for (i = 0; i < UNITS_CHUNKS; i++) {
		if (!core->units->chunk[i])
			continue;
		plain_free(core->units->chunk[i]);
		core->memory -= sizeof(*core->units->chunk[i]);
	}
	plain_free(core->units);
	core->memory -= sizeof(*core->units);
	core->units = NULL;
}

struct core_packet *core_first(const struct core *core)
{
	struct core_packet *packet;

	if (!core->units)
		return core->table[0] ? core->table[0][0] : NULL;
	for (packet = core->units->list; packet; packet = packet->next)
		if (!piece_of(packet)->offset)
			break;
	return packet;
}

static struct core_packet *before_in(struct core_packet *list, const struct core_packet *packet)
{
	if (list == packet)
		return NULL;
	while (list->next != packet)
		list = list->next;
	return list;
}

/* The slots of a whole datagram are full, from the first to the last's; there are two at least, or it would be no fragment. */
static struct core_packet *link_slots(struct core *core, struct core_packet *packet, struct core_packet **before)
{
	u32 number = piece_of(core->last)->offset / core->size + 1, index = piece_of(packet)->offset / core->size, done = 0, i;
	struct core_packet *first = NULL, **end = &first;

	*before = index ? core->table[(index - 1) / CORE_CHUNK][(index - 1) % CORE_CHUNK] : NULL;
	while (done < number) {
		struct core_packet **chunk = core->table[done / CORE_CHUNK];
		u32 slots = min(number - done, (u32)CORE_CHUNK);

		for (i = 0; i < slots; i++) {
			*end = chunk[i];
			end = &chunk[i]->next;
		}
		done += slots;
		if (has_table(core))
			plain_free(chunk);
	}
	*end = NULL;
	if (has_table(core))
		plain_free(core->table);
	core->table = core->own;
	core->memory = 0;
	return first;
}

static void empty(struct core *core)
{
	memset(core, 0, sizeof(*core));
	core_init(core);
}

struct core_packet *core_link(struct core *core, struct core_packet *packet, struct core_packet **before)
{
	struct core_packet *list;

	if (!core->units)
		return link_slots(core, packet, before);
	list = sorted(core->units->list);
	*before = before_in(list, packet);
	units_free(core);
	return list;
}

struct core_packet *core_take(struct core *core)
{
	struct core_packet *list;

	if (core->units) {
		list = core->units->list;
		units_free(core);
	} else {
		list = take_slots(core, NULL);
	}
	empty(core);
	return list;
}
