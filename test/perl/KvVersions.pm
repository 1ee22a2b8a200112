# A reader of the version logs of a store, NNNNNNNN.versions, that shares no code with the library's: it is written
# from docs/internals/format.md.  Tests ask it which map counts, which files a shard consists of, and what of that is
# durable; and they damage a log by it: cut, drop, flip, forge.
#
#	my $log = KvVersions->read($dir);			# the newest log of the store with this directory
#	my $map = $log->durable_map;				# { number, next_shard_id, shards => [ids], since => […], bounds => […] }
#	my $mark = $log->mark(0);					# { number, map_number, log_tail, covers, last_log, files => { … } }
#	my @names = $log->names($mark->{files}, 0, $mark->{last_log});
#	$log->drop(($log->edits('MARK', 0))[-1]);	# the file without that edit, and with valid checksums
#
# All integers are little-endian.  A log:
#
#	head	:= u32 "KVVS", u32 format_version, u64 directory_id, u32 dboid, u32 relid, u32 generation, u32 0,
#			   u64 id, u32 number, u32 CRC(all before), note
#	note	:= u64 synced, u32 next, u32 CRC(u32 number, synced, next)
#	edit	:= u32 "KVED", u32 crc, u32 len, u32 kind, u32 shard, u32 append, u32 rest, u32 0, u64 offset, u64 synced, body
#
# The edits of one append count together: rest has its bytes from here on.  The number of an append never falls.
#
#	crc		 = CRC(u32 number of the log, bytes 8 of the edit to the end of its body)
#	kind	:= 1 MAP | 2 FILES | 3 MARK | 4 CARRIED | 5 SYNCED
package KvVersions;
use strict;
use warnings;
use Exporter 'import';

our @EXPORT_OK = qw(crc32c log_paths);

use constant { HEAD => 64, NOTE => 48, EDIT => 48, NO_SHARD => 0xFFFFFFFF, UNKNOWN => ~0, LOG_HEADER => 64 };
my @KINDS = (undef, qw(MAP FILES MARK CARRIED SYNCED));
my %KIND = map { $KINDS[$_] => $_ } 1 .. $#KINDS;

# ---- CRC-32C, as PostgreSQL computes it, over one string of bytes ----

# What the register becomes by its lower, or upper, two bytes when four bytes of zeros follow.
my (@lower, @upper, @byte);
@byte = map { my $c = $_; $c = $c & 1 ? 0x82F63B78 ^ ($c >> 1) : $c >> 1 for 1 .. 8; $c } 0 .. 255;

sub make_tables
{
	my @two = map { my $c = $byte[ $_ & 0xFF ] ^ ($_ >> 8); $byte[ $c & 0xFF ] ^ ($c >> 8) } 0 .. 0xFFFF;
	@upper = @two;
	@lower = map { $two[ $_ & 0xFFFF ] ^ ($_ >> 16) } @two;
	return;
}

sub crc32c
{
	my $c = 0xFFFFFFFF;
	my $fours = length($_[0]) >> 2;
	if ($fours > 1000 || @lower && $fours)
	{
		make_tables() unless @lower;
		for (unpack("V$fours", $_[0])) { $c ^= $_; $c = $lower[ $c & 0xFFFF ] ^ $upper[ $c >> 16 ] }
	}
	else { $fours = 0 }
	$c = $byte[ ($c ^ $_) & 0xFF ] ^ ($c >> 8) for unpack('C*', substr($_[0], 4 * $fours));
	return $c ^ 0xFFFFFFFF;
}

# ---- files ----

# The logs in a store's directory, the newest first.
sub log_paths
{
	my ($dir) = @_;
	opendir my $handle, $dir or return;
	return map { "$dir/$_" } reverse sort grep { /^[0-9a-f]{8}\.versions$/ } readdir $handle;
}

sub slurp
{
	my ($path) = @_;
	open my $file, '<:raw', $path or die "$path: $!\n";
	local $/;
	return scalar(<$file>) // '';
}

# In place: the inode stays, as does the time of the directory.
sub put_file
{
	my ($path, $bytes) = @_;
	open my $file, -e $path ? '+<:raw' : '>:raw', $path or die "$path: $!\n";
	print $file $bytes or die "$path: $!\n";
	truncate $file, length $bytes or die "$path: $!\n";
	close $file or die "$path: $!\n";
	return;
}

# ---- reading ----

# The newest log of a store, or the file that path names.  It dies if there is none, or its head is not valid.
# value_file_kb: kvfdw.test_value_file_kb of the server.
sub read ## no critic (ProhibitBuiltinHomonyms)
{
	my ($class, $dir, %is) = @_;
	my ($newest) = $is{path} // log_paths($dir);
	die "$dir has no version log\n" unless defined $newest;
	return $class->parse(slurp($newest), %is, path => $newest);
}

# The same of bytes.  before: the object that was read from the file before, whose edits need no second look.
sub parse
{
	my ($class, $bytes, %is) = @_;
	my $self = bless { value_file_kb => 0, %is, bytes => $bytes }, $class;
	my $before = delete $self->{before};
	die "$self->{path}: no head of a version log\n" if length $bytes < HEAD || unpack('V', $bytes) != 0x4B565653;
	@{ $self->{head} = {} }{qw(magic format_version directory_id dboid relid generation shard id number crc)} = unpack('VVQ<VVVVQ<VV', $bytes);
	die "$self->{path}: the head is damaged\n" if crc32c(substr($bytes, 0, NOTE - 4)) != $self->{head}{crc};
	$self->{number} = $self->{head}{number};
	my ($noted, $next, $crc) = unpack('Q<VV', substr($bytes, NOTE, HEAD - NOTE));
	$self->{note} = note_of($self->{number}, $noted, $next) eq substr($bytes, NOTE, HEAD - NOTE) ? { synced => $noted, next => $next } : { synced => 0, next => 0 };

	my ($end, $append) = (HEAD, 0);
	$self->{edits} = [];
	if ($before && substr($bytes, 0, $before->{end}) eq substr($before->{bytes}, 0, $before->{end}))
	{
		$self->{edits} = [ @{ $before->{edits} } ];
		$end = $before->{end};
		$append = $self->{edits}[-1]{append} if @{ $self->{edits} };
	}
	while (my @edits = $self->append_at($end, $append))
	{
		push @{ $self->{edits} }, @edits;
		$append = $edits[-1]{append};
		$end = $edits[0]{offset} + $edits[0]{rest};
	}
	$self->{end} = $end;
	$self->{torn} = $end < length $bytes;

	# what follows tells whether the first that is not valid was durable; edits of an append that is not whole tell nothing
	my $first = $self->edit_at($end);
	my ($least, $after, $durable) = ($first && $first->{append} >= $append ? $first->{append} + 1 : $append, 0, 0);
	for (my $at = $end + 8; $at < length $bytes; $at += 8)
	{
		my $edit = $self->edit_at($at) or next;
		next if $edit->{append} < $least;
		$after++;
		$durable = $edit->{synced} if $edit->{synced} > $durable;
	}
	$self->{damaged} = $durable > $end || $self->{note}{synced} > $end ? 1 : 0;
	$self->{damaged_if_strict} = $after > 0 ? 1 : 0;    # at level none after a start that trusts
	return $self;
}

# The note of a log: up to where it is durable, and the number of the log that has replaced it.
sub note_of { my ($number, $synced, $next) = @_; my $note = pack('Q<V', $synced, $next); return $note . pack('V', crc32c(pack('V', $number) . $note)) }

# The valid edit at an offset, or nothing.
sub edit_at
{
	my ($self, $at) = @_;
	return if $at + EDIT > length $self->{bytes};
	my ($magic, $crc, $len, $kind, $shard, $append, $rest, $pad, $offset, $synced) = unpack('VVVVVVVVQ<Q<', substr($self->{bytes}, $at, EDIT));
	return if $magic != 0x4B564544 || $offset != $at || $len % 8 || $at + EDIT + $len > length $self->{bytes};
	return if crc32c(pack('V', $self->{number}) . substr($self->{bytes}, $at + 8, EDIT - 8 + $len)) != $crc;
	return { kind => $KINDS[$kind] // $kind, shard => $shard, append => $append, rest => $rest, offset => $offset, synced => $synced, len => $len, body => substr($self->{bytes}, $at + EDIT, $len) };
}

# The edits of the whole append at an offset, which is not older than another; or nothing.
sub append_at
{
	my ($self, $at, $least) = @_;
	my @edits = $self->edit_at($at) // return;
	return if $edits[0]{append} < $least;
	my $end = $at + $edits[0]{rest};
	while (($at += EDIT + $edits[-1]{len}) < $end)
	{
		push @edits, $self->edit_at($at) // return;
		return if $edits[-1]{append} != $edits[0]{append} || $edits[-1]{rest} != $end - $at;
	}
	return $at == $end ? @edits : ();
}

# The file again, as it is now.
sub again { my ($self) = @_; return ref($self)->parse(slurp($self->{path}), %$self{qw(path value_file_kb)}, before => $self) }

# The store's newest log, of which more was written since or another has taken its place.
sub next_one
{
	my ($self) = @_;
	my ($newest) = log_paths($self->{path} =~ s{/[^/]*\z}{}r);
	die "$self->{path} is gone, and no log is there\n" unless defined $newest;
	return $newest eq $self->{path} ? $self->again : ref($self)->read(undef, path => $newest, value_file_kb => $self->{value_file_kb});
}

# The edits of a kind, of a shard; in the order of the log.
sub edits
{
	my ($self, $kind, $shard) = @_;
	return grep { (!defined $kind || $_->{kind} eq $kind) && (!defined $shard || $_->{shard} == $shard) } @{ $self->{edits} };
}

# Up to where the log was durable at its last sync.
sub durable_end
{
	my ($self) = @_;
	my $end = $self->{note}{synced};
	for (@{ $self->{edits} }) { $end = $_->{synced} if $_->{synced} > $end }
	return $end;
}

# ---- bodies ----

sub unpack_files
{
	my ($bytes) = @_;
	die "an edit's files are too short\n" if length $bytes < 120;
	my %is;
	my @numbers;
	(@is{qw(base_run nunfrozen)}, @numbers[ 0 .. 11 ], @is{qw(next_run first_log flags lost frozen_keys unfrozen_entries oldest_xid next_address open_address job nvalue_files)}) =
	  unpack('VV V12 VVVV Q<Q<Q< Q<Q< VV', $bytes);
	die "an edit has $is{nunfrozen} unfrozen runs\n" if $is{nunfrozen} > 12;
	die "an edit's files have another length than their value files\n" if length $bytes != 120 + 32 * $is{nvalue_files};
	$is{unfrozen} = [ @numbers[ 0 .. delete($is{nunfrozen}) - 1 ] ];
	$is{value_files} = [ map { my %file; @file{qw(address used live last_log flags order)} = unpack('Q<Q<Q<Vvv', substr($bytes, 120 + 32 * $_, 32)); \%file } 0 .. delete($is{nvalue_files}) - 1 ];
	return \%is;
}

sub pack_files
{
	my ($is) = @_;
	my @numbers = (@{ $is->{unfrozen} }, (0) x 12)[ 0 .. 11 ];
	return pack('VV V12 VVVV Q<Q<Q< Q<Q< VV', $is->{base_run}, scalar @{ $is->{unfrozen} }, @numbers, @$is{qw(next_run first_log flags lost frozen_keys unfrozen_entries oldest_xid next_address open_address job)},
		scalar @{ $is->{value_files} }) . join('', map { pack('Q<Q<Q<Vvv', @$_{qw(address used live last_log flags order)}) } @{ $is->{value_files} });
}

sub unpack_mark
{
	my ($bytes) = @_;
	my %is;
	@is{qw(log_tail covers last_log number map_number pad)} = unpack('Q<Q<VVVV', $bytes);
	$is{files} = unpack_files(substr($bytes, 32));
	return \%is;
}

sub pack_mark { my ($is) = @_; return pack('Q<Q<VVVV', @$is{qw(log_tail covers last_log number map_number pad)}) . pack_files($is->{files}) }

# What the shard has in addition to the mark with this number: entries as in a write buffer, and their values.
sub unpack_carried
{
	my ($body) = @_;
	my %is;
	@is{qw(number map_number incarnation pad base entry_bytes value_bytes)} = unpack('VVVVQ<VV', $body);
	die "what is carried has other bytes than it says\n" if length $body != 32 + $is{entry_bytes} + 8 * int(($is{value_bytes} + 7) / 8) || $is{entry_bytes} % 8;
	@is{qw(entries values)} = (substr($body, 32, $is{entry_bytes}), substr($body, 32 + $is{entry_bytes}, $is{value_bytes}));
	return \%is;
}

sub pack_carried
{
	my ($is) = @_;
	return pack('VVVVQ<VV', @$is{qw(number map_number incarnation pad base)}, length $is->{entries}, length $is->{values}) . $is->{entries} . $is->{values} . "\0" x (-length($is->{values}) % 8);
}

sub unpack_map
{
	my ($body) = @_;
	my %is;
	@is{qw(number nshards next_shard_id bytes)} = unpack('VVVV', $body);
	my $n = $is{nshards};
	die "a map has other bytes than it says\n" if length $body != 16 + 8 * int(($is{bytes} + 7) / 8) || $is{bytes} < 4 * (3 * $n + 1);
	my @words = unpack('x16 V' . (3 * $n + 1), $body);
	$is{shards} = [ splice @words, 0, $n ];
	$is{since} = [ splice @words, 0, $n ];
	my $keys = substr($body, 16 + 4 * (3 * $n + 1), $is{bytes} - 4 * (3 * $n + 1));
	$is{bounds} = [ map { substr($keys, $words[$_], $words[ $_ + 1 ] - $words[$_]) } 0 .. $n - 1 ];
	return \%is;
}

sub pack_map
{
	my ($is) = @_;
	my ($at, @offsets) = (0);
	for (@{ $is->{bounds} }) { push @offsets, $at; $at += length }
	my $data = pack('V*', @{ $is->{shards} }, @{ $is->{since} }, @offsets, $at) . join('', @{ $is->{bounds} });
	return pack('VVVV', $is->{number}, scalar @{ $is->{shards} }, $is->{next_shard_id}, length $data) . $data . "\0" x (-length($data) % 8);
}

my %unpack = (MAP => \&unpack_map, FILES => \&unpack_files, MARK => \&unpack_mark, CARRIED => \&unpack_carried, SYNCED => sub { return {} });
my %pack = (MAP => \&pack_map, FILES => \&pack_files, MARK => \&pack_mark, CARRIED => \&pack_carried, SYNCED => sub { return '' });

# What an edit says, as fields.
sub fields { my ($edit) = @_; return $edit->{fields} //= $unpack{ $edit->{kind} }->($edit->{body}) }

# ---- what counts ----

sub newest
{
	my ($self, $kind, $shard) = @_;
	for (reverse @{ $self->{edits} }) { return fields($_) if $_->{kind} eq $kind && $_->{shard} == $shard }
	return undef;
}

# The newest FILES, or mark, of a shard; undef if there is none.  since: of the map with that number, or a later one.
sub files { my ($self, $shard) = @_; return $self->newest('FILES', $shard) }

sub mark
{
	my ($self, $shard, $since) = @_;
	my $mark = $self->newest('MARK', $shard);
	return $mark && $mark->{number} > 0 && $mark->{map_number} >= ($since // 0) ? $mark : undef;
}

# The newest that is carried in addition to the shard's newest mark, or to none; undef if nothing is.
sub carried
{
	my ($self, $shard) = @_;
	my $mark = $self->mark($shard) // { number => 0, map_number => 0 };
	for (reverse $self->edits('CARRIED', $shard)) { return fields($_) if fields($_)->{number} == $mark->{number} && fields($_)->{map_number} == $mark->{map_number} }
	return undef;
}

# The newest marks by shard.
sub marks { my ($self) = @_; return { map { $_->{shard} => fields($_) } $self->edits('MARK') } }

# All maps, the newest first.
sub maps { my ($self) = @_; return map { fields($_) } reverse $self->edits('MAP') }
sub newest_map { my ($self) = @_; return ($self->maps)[0] // die "$self->{path}: no map\n" }

# Has each shard of the map whose bounds ever changed a mark since then?
sub is_durable
{
	my ($self, $map) = @_;
	for my $i (0 .. $#{ $map->{shards} })
	{
		return 0 if $map->{since}[$i] && !$self->mark($map->{shards}[$i], $map->{since}[$i]);
	}
	return 1;
}

# The map that counts after a power loss.
sub durable_map
{
	my ($self) = @_;
	for ($self->maps) { return $_ if $self->is_durable($_) }
	die "$self->{path}: no map whose shards have their marks\n";
}

# ---- names of files ----

sub run_name { my ($shard, $number) = @_; return sprintf '%05x.%08x.run', $shard, $number }
sub key_log_name { my ($shard, $number) = @_; return sprintf '%05x.%08x.log', $shard, $number }

sub value_name
{
	my ($self, $address) = @_;
	my $volume = $address >> 43;
	my $class = $volume < 0x10000 ? 0 : int(($volume - 0x10000) / 0x30000);
	my $bits = 22 + 2 * $class;
	if (my $kb = $self->{value_file_kb}) { if ($class < 4) { for ($bits = 10 + 2 * $class; $kb > 1; $kb >>= 1) { $bits++ } } }
	return sprintf '%05x.c%05x.val', $volume, ($address & ((1 << 43) - 1)) >> $bits;
}

# The runs of a shard with these files, the frozen one first.
sub runs { my ($files) = @_; return grep { $_ } $files->{base_run}, @{ $files->{unfrozen} } }

# The names of its runs, its value files, and its key logs up to last_log if that is given.
sub names
{
	my ($self, $files, $shard, $last_log) = @_;
	return ((map { run_name($shard, $_) } runs($files)), (map { $self->value_name($_->{address}) } @{ $files->{value_files} }),
		(map { key_log_name($shard, $_) } defined $last_log ? $files->{first_log} .. $last_log : ()));
}

# The names of all that the durable state needs: the newest marks of the durable map's shards.  The last key log
# of a mark may be missing if nothing of it counts.
sub durable_names
{
	my ($self) = @_;
	my %is;
	for my $shard (@{ $self->durable_map->{shards} })
	{
		my $mark = $self->mark($shard) or next;
		$is{$_} = 1 for $self->names($mark->{files}, $shard, $mark->{last_log} - ($mark->{log_tail} <= LOG_HEADER ? 1 : 0));
	}
	return sort keys %is;
}

# ---- damage ----

# Each changes the file in place, and returns the log as it then is; undef: it has no head any more.
sub changed
{
	my ($self, $bytes) = @_;
	put_file($self->{path}, $bytes);
	return eval { $self->again };
}

# The log ends where the edit begins, or so many bytes after that.
sub cut { my ($self, $edit, $more) = @_; return $self->changed(substr($self->{bytes}, 0, $edit->{offset} + ($more // 0))) }

# One bit of an edit changes: of a byte of its record and body.
sub flip
{
	my ($self, $edit, $at, $bit) = @_;
	my $bytes = $self->{bytes};
	substr($bytes, $edit->{offset} + ($at // EDIT), 1) ^= chr(1 << ($bit // 0));
	return $self->changed($bytes);
}

# The head with other bytes, which the code changes, and a checksum that is right.
sub forge_head
{
	my ($self, $code) = @_;
	my $head = substr($self->{bytes}, 0, NOTE - 4);
	$code->($head);
	return $self->changed($head . pack('V', crc32c($head)) . substr($self->{bytes}, NOTE));
}

# The note with other bytes, and a checksum that is right.
sub forge_note
{
	my ($self, $code) = @_;
	my $note = substr($self->{bytes}, NOTE, HEAD - NOTE);
	$code->($note);
	return $self->changed(substr($self->{bytes}, 0, NOTE) . note_of($self->{number}, unpack('Q<V', $note)) . substr($self->{bytes}, HEAD));
}

# The body of an edit as the code changes it, and all checksums right; forge_fields: its fields.
sub forge
{
	my ($self, $edit, $code) = @_;
	my $body = $edit->{body};
	$code->($body);
	return $self->rewrite(map { $_->{offset} == $edit->{offset} ? { %$_, body => $body, fields => undef } : $_ } @{ $self->{edits} });
}

sub forge_fields
{
	my ($self, $edit, $code) = @_;
	return $self->forge($edit, sub { my $fields = $unpack{ $edit->{kind} }->($_[0]); $code->($fields); $_[0] = $pack{ $edit->{kind} }->($fields) });
}

# The log without these edits.
sub drop
{
	my ($self, @edits) = @_;
	my %is = map { $_->{offset} => 1 } @edits;
	return $self->rewrite(grep { !$is{ $_->{offset} } } @{ $self->{edits} });
}

# The log without the last edit of a kind, of a shard.
sub drop_last
{
	my ($self, $kind, $shard) = @_;
	my $last = ($self->edits($kind, $shard))[-1] // die "$self->{path}: no $kind" . (defined $shard ? " of shard $shard" : '') . "\n";
	return $self->drop($last);
}

# The log with one more edit: kind, shard and fields.
sub add
{
	my ($self, $kind, $shard, $fields) = @_;
	return $self->rewrite(@{ $self->{edits} }, { kind => $kind, shard => $shard // NO_SHARD, body => $pack{$kind}->($fields), synced => $kind eq 'SYNCED' ? $self->{end} : $self->durable_end });
}

# The file has the same head and these edits, all valid.  What each says was durable is, as far as it is still there.
sub rewrite
{
	my ($self, @edits) = @_;
	my ($at, @ends) = (HEAD, [ HEAD, HEAD ]);    # where edits ended, and where they end
	for my $edit (@edits)
	{
		$at += EDIT + length $edit->{body};
		push @ends, [ $edit->{offset} + EDIT + $edit->{len}, $at ] if defined $edit->{offset};
	}
	# edits that were appended together stay so
	my @groups;
	for my $edit (@edits)
	{
		my $end = defined $edit->{offset} ? $edit->{offset} + $edit->{rest} : -1;
		if (@groups && $end >= 0 && $groups[-1]{end} == $end) { push @{ $groups[-1]{edits} }, $edit }
		else { push @groups, { end => $end, edits => [$edit] } }
	}
	my ($noted) = grep { $_->[0] <= $self->{note}{synced} } reverse @ends;
	my ($bytes, $append) = (substr($self->{bytes}, 0, NOTE) . note_of($self->{number}, $noted ? $noted->[1] : 0, $self->{note}{next}), 0);
	for my $group (@groups)
	{
		my $rest = 0;
		$rest += EDIT + length $_->{body} for @{ $group->{edits} };
		for my $edit (@{ $group->{edits} })
		{
			$append = $edit->{append} // $append + 1;
			my ($durable) = grep { $_->[0] <= $edit->{synced} } reverse @ends;
			my $record = pack('VVVVVVQ<Q<', length $edit->{body}, $KIND{ $edit->{kind} } // $edit->{kind}, $edit->{shard}, $append, $rest, 0, length $bytes, $durable ? $durable->[1] : 0) . $edit->{body};
			$bytes .= pack('VV', 0x4B564544, crc32c(pack('V', $self->{number}) . $record)) . $record;
			$rest -= EDIT + length $edit->{body};
		}
	}
	return $self->changed($bytes);
}

1;
