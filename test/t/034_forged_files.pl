# Promise: files and WAL records whose checksums are right and whose contents cannot be
# are damage of their one table (XX001): no crash, the server starts, other tables have
# their rows, and TRUNCATE is the way out. A record that does not even name a table
# stops the replay.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvReplica;
use KvVersions;

plan skip_all => 'heap has no files of kvfdw' if heap_only();
my $node = kv_cluster('forged', checkpoint_timeout => '1h', restart_after_crash => 'off', autovacuum => 'off');
plan skip_all => 'needs fault injection' unless has_faults($node);
my $data = $node->data_dir;

sub write_file
{
	my ($path, $bytes) = @_;
	open(my $f, '+<:raw', $path) or die "$path: $!";
	print $f $bytes;
	truncate $f, length $bytes;
	close $f;
	return;
}

my %oid;
sub create
{
	my ($name, $options) = @_;
	$node->safe_psql('postgres', kv_table($name, 'k int, v text', 'k', $options));
	$oid{$name} = $node->safe_psql('postgres', "SELECT '$name'::regclass::oid");
	return;
}

sub damaged
{
	my ($name, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n" . ($sql // "SELECT * FROM $name"), timeout => 300);
	return like($err, qr/ERROR:  XX001: /, "$name: damaged" . ($sql ? ": $sql" : '')) || diag "$out $err";
}

sub recovers
{
	my ($name) = @_;
	return is($node->safe_psql('postgres', "TRUNCATE $name; INSERT INTO $name VALUES (1, 'new'); TABLE $name"), '1|new', "$name: TRUNCATE is the way out");
}

# ---- table files and version logs ----

my %forge = (
	table_wal => [ 'table', sub { substr($_[0], 64, 4) = pack('L', 3) } ],
	table_wal_large => [ 'table', sub { substr($_[0], 64, 4) = pack('L', 0x7FFFFFFF) } ],
	table_key_width => [ 'table', sub { substr($_[0], 44, 4) = pack('L', 9) } ],
	table_other_width => [ 'table', sub { substr($_[0], 44, 4) = pack('L', 8) } ],
	table_id => [ 'table', sub { substr($_[0], 56, 8) = pack('Q', 0) } ],
	table_flags => [ 'table', sub { substr($_[0], 72, 4) = pack('L', 2) } ],
	table_not_moved => [ 'table', sub { substr($_[0], 80, 72) = pack('QL16', 0, 1, 1 .. 15) } ],
	table_leaving => [ 'table', sub { substr($_[0], 80, 72) = pack('QL16', 1, 16, 1 .. 15) } ],
	map_next => [ 'MAP', sub { substr($_[0], 8, 4) = pack('L', 3) } ],
	map_none => [ 'MAP', sub { substr($_[0], 4, 4) = pack('L', 0) } ],
	map_twice => [ 'MAP', sub { substr($_[0], 16, 4) = pack('L', 1) } ],
	map_few => [ 'MAP', sub { substr($_[0], 4, 4) = pack('L', 3) } ],
	map_descending => [ 'MAP', sub { substr($_[0], 48 + 8, 4) = pack('L', 0xFFFFFF00) } ],
	map_beyond => [ 'MAP', sub { substr($_[0], 48 + 16, 4) = pack('L', 1000) } ],
	map_short => [ 'MAP', sub { $_[0] = substr($_[0], 0, 24); substr($_[0], 12, 4) = pack('L', 4) } ],
	map_order => [ 'MAP', sub { substr($_[0], 68, 3) = "\xC0\x80\x40" } ],
	map_gap => [ 'MAP', sub { substr($_[0], 48, 4) = pack('L', 1) } ],
	# a shard that must have a mark, and has none
	map_since => [ 'MAP', sub { substr($_[0], 32, 4) = pack('L', 7) } ],
	# a log that another one has replaced, which is not there
	map_replaced => [ 'NOTE', sub { substr($_[0], 8, 4) = pack('L', 2) } ],
	# the volume of the first value file
	files_first => [ 'FILES', sub { substr($_[0], 120, 8) = pack('Q', 0xFFFF << 43) } ],
	files_beyond => [ 'FILES', sub { substr($_[0], 120, 8) = pack('Q', 0x100000 << 43) } ],
	files_used => [ 'FILES', sub { substr($_[0], 128, 8) = pack('Q', 1 << 40) } ],
	# where the next one is
	files_next => [ 'FILES', sub { substr($_[0], 96, 8) = pack('Q', 0x100000 << 43) } ],
	files_many => [ 'FILES', sub { substr($_[0], 116, 4) = pack('L', 1000) } ],
	files_unfrozen => [ 'FILES', sub { substr($_[0], 4, 4) = pack('L', 13) } ],
	files_short => [ 'FILES', sub { $_[0] = substr($_[0], 0, 112) } ],
	mark_first => [ 'MARK', sub { substr($_[0], 32 + 120, 8) = pack('Q', 0xFFFF << 43) } ],
	mark_next => [ 'MARK', sub { substr($_[0], 32 + 96, 8) = pack('Q', 0x100000 << 43) } ],
	mark_many => [ 'MARK', sub { substr($_[0], 32 + 116, 4) = pack('L', 0xFFFFFFFF) } ],
	mark_unfrozen => [ 'MARK', sub { substr($_[0], 32 + 4, 4) = pack('L', 13) } ],
	mark_run => [ 'MARK', sub { substr($_[0], 32, 4) = pack('L', 77) } ],
	mark_short => [ 'MARK', sub { $_[0] = substr($_[0], 0, 24) } ],
	carried_bytes => [ 'CARRIED', sub { substr($_[0], 24, 4) = pack('L', 0xFFFFFFF8) } ],
	carried_keylen => [ 'CARRIED', sub { substr($_[0], 32 + 4, 2) = pack('S', 60000) } ],
	carried_value => [ 'CARRIED', sub { substr($_[0], 32 + 16, 8) = pack('Q', 0xFFFFFFF) } ],
	carried_len => [ 'CARRIED', sub { substr($_[0], 32 + 24, 4) = pack('L', 0x7FFFFFFF) } ],
	carried_crc => [ 'CARRIED', sub { substr($_[0], 32 + 28, 4) = pack('L', 12345) } ],
	carried_short => [ 'CARRIED', sub { $_[0] = substr($_[0], 0, 24) } ]);
my %level = (files => 'none', mark => 'keys', carried => 'full');

# Forge the files of these tables, when the server was stopped or killed.
sub forge_files
{
	my ($end, @names) = @_;
	for my $name (@names, "sound_$end")
	{
		my ($kind) = $name =~ /^([a-z]+)/;
		create($name, $level{$kind} ? "shards '1', wal '$level{$kind}'" : "shards '4'");
		$node->safe_psql('postgres', "INSERT INTO $name SELECT g * 100000000, 'v' FROM generate_series(-10, 10) g");
		$node->safe_psql('postgres', "SELECT kvfdw_flush('$name')") if $kind =~ /^(?:files|mark)$/;
	}
	$node->safe_psql('postgres', 'CHECKPOINT');
	if ($end eq 'stopped') { $node->stop; } else { kill_all($node); }
	for my $name (@names)
	{
		my ($kind, $code) = @{ $forge{$name} };
		my ($file) = grep { m{/$oid{$name}/\d+/table$} } kv_files($node);
		if ($kind ne 'table')
		{
			my $log = KvVersions->read("$data/kvfdw/" . $file =~ s{/table$}{}r);
			if ($kind eq 'NOTE') { $log->forge_note($code); next; }
			my $edit = ($log->edits($kind))[-1] // die "$name: no $kind";
			$log->forge($edit, $code);
			next;
		}
		my $bytes = slurp_file("$data/kvfdw/$file");
		my ($at, $checked) = (52, sub { substr($_[0], 0, 52) . substr($_[0], 56) });
		die "$file is not as expected" unless crc32c($checked->($bytes)) == unpack('L', substr($bytes, $at, 4));
		$code->($bytes);
		substr($bytes, $at, 4) = pack('L', crc32c($checked->($bytes)));
		write_file("$data/kvfdw/$file", $bytes);
	}
	$node->start;
	$node->psql('postgres', "SELECT * FROM $_") for @names;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM kvfdw_stat_tables WHERE wal IS NULL'), 0, 'kvfdw_stat_tables works');
	for my $name (@names) { damaged($name); damaged($name, "INSERT INTO $name VALUES (1, 'x')"); }
	is($node->safe_psql('postgres', "SELECT count(*) FROM sound_$end"), 21, 'another table is sound');
	recovers($_) for grep { !/^table/ } @names;
	$node->safe_psql('postgres', join '', map { "DROP FOREIGN TABLE $_;" } @names);
	return;
}
forge_files('stopped', grep { !/^carried/ } sort keys %forge);

# a clean stop leaves nothing to be carried
forge_files('killed', grep { /^carried/ } sort keys %forge);

# ---- WAL records ----

# Change the first record of a type that belongs to a table and lies within a page.
sub forge_record
{
	my ($from, $type, $name, $code, $nth) = @_;
	my ($out) = run_command([ 'pg_waldump', '-p', "$data/pg_wal", '-s', $from, '-r', 'custom201' ]);
	my $db = $node->{dboid};
	my $seen = 0;
	for my $line (split /\n/, $out)
	{
		my ($len, $hi, $lo) = $line =~ m{len \(rec/tot\):\s*\d+/\s*(\d+),.* lsn: ([0-9A-F]+)/([0-9A-F]+),} or next;
		my $at = hex($lo) % (16 * 1024 * 1024);
		next if $at % 8192 + $len > 8192;
		my $path = sprintf("%s/pg_wal/%08X%08X%08X", $data, 1, hex($hi), int(hex($lo) / (16 * 1024 * 1024)));
		my $bytes = slurp_file($path);
		my $record = substr($bytes, $at, $len);
		my ($total, $xid, $prev, $info, $rmid, $crc) = unpack('LLQCCx2L', $record);
		die 'not a record' unless $total == $len && $rmid == 201 && $crc == crc32c(substr($record, 24) . substr($record, 0, 20));
		next unless ($info & 0xF0) == $type;
		my $start = 24;
		$start += 5 if ord(substr($record, $start, 1)) == 252;	# toplevel xid
		$start += ord(substr($record, $start, 1)) == 255 ? 2 : 5;
		my $body = substr($record, $start);
		next if defined $name && (unpack('LL', $body))[1] != $oid{$name};
		next if $seen++ < ($nth // 0);
		$code->($body);
		substr($record, $start) = $body;
		die 'length changed' unless length $record == $len;
		substr($record, 20, 4) = pack('L', crc32c(substr($record, 24) . substr($record, 0, 20)));
		substr($bytes, $at, $len) = $record;
		write_file($path, $bytes);
		return 1;
	}
	die "no record of type $type" . ($name ? " of $name" : '');
}

# type, what to write where; 'fresh': the table is made after the checkpoint
my %records = (
	put_keylen => [ 0x00, sub { substr($_[0], 32, 2) = pack('S', 60000) } ],
	put_keylen_short => [ 0x00, sub { substr($_[0], 32, 2) = pack('S', 3) } ],
	put_len => [ 0x00, sub { substr($_[0], 24, 4) = pack('L', 0x7FFFFFFF) } ],
	put_kind => [ 0x00, sub { substr($_[0], 34, 1) = chr(77) } ],
	put_form => [ 0x00, sub { substr($_[0], 35, 1) = chr(77) } ],
	put_lz4 => [ 0x00, sub { substr($_[0], 35, 1) = chr(8) } ],
	put_null_lz4 => [ 0x00, sub { substr($_[0], 35, 1) = chr(9) } ],
	put_xid => [ 0x00, sub { substr($_[0], 16, 8) = pack('Q', 1) } ],
	put_xid_far => [ 0x00, sub { substr($_[0], 16, 8) = pack('Q', 1 << 40 | 5000) } ],
	versions_n => [ 0x70, sub { substr($_[0], 24, 4) = pack('L', 0xFFFFFFFF) } ],
	versions_few => [ 0x70, sub { substr($_[0], 24, 4) = pack('L', 1) } ],
	versions_xid => [ 0x70, sub { substr($_[0], 16, 8) = pack('Q', 1) } ],
	versions_keylen => [ 0x70, sub { substr($_[0], 32 + 8, 2) = pack('S', 60000) } ],
	versions_len => [ 0x70, sub { substr($_[0], 32, 4) = pack('L', 0x7FFFFFFF) } ],
	versions_kind => [ 0x70, sub { substr($_[0], 32 + 10, 1) = chr(77) } ],
	versions_form => [ 0x70, sub { substr($_[0], 32 + 11, 1) = chr(77) } ],
	batch_n => [ 0x50, sub { substr($_[0], 12, 4) = pack('L', 0xFFFFFFFF) } ],
	batch_few => [ 0x50, sub { substr($_[0], 12, 4) = pack('L', 0) } ],
	batch_keylen => [ 0x50, sub { substr($_[0], 16 + 4, 2) = pack('S', 65000) } ],
	batch_kind => [ 0x50, sub { substr($_[0], 16 + 6, 1) = chr(99) } ],
	batch_address => [ 0x50, sub { substr($_[0], 16 + 16, 8) = pack('Q', 1) } ],
	create_nshards => [ 0x10, sub { substr($_[0], 12, 4) = pack('L', 65536) }, 'fresh' ],
	create_no_shards => [ 0x10, sub { substr($_[0], 12, 4) = pack('L', 0) }, 'fresh' ],
	create_wal => [ 0x10, sub { substr($_[0], 36, 4) = pack('L', 17) }, 'fresh' ],
	create_bound => [ 0x10, sub { substr($_[0], 40, 2) = pack('S', 60000) }, 'fresh' ],
	create_width => [ 0x10, sub { substr($_[0], 32, 4) = pack('L', 4000) }, 'fresh' ],
	schema_junk => [ 0x20, sub { substr($_[0], 12) = 'x' x (length($_[0]) - 12) }, 'fresh' ]);
$node->safe_psql('postgres', 'CHECKPOINT');
$node->{dboid} = $node->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'postgres'});
for my $name (sort(keys %records), 'sound')
{
	my $fresh = $records{$name} && $records{$name}[2];
	create($name, "shards '4'" . ($name =~ /^batch/ ? ", wal 'keys'" : ''));
	$node->safe_psql('postgres', "INSERT INTO $name VALUES (1, 'before')") unless $fresh;
}
$node->safe_psql('postgres', 'CHECKPOINT');
my $from = $node->safe_psql('postgres', 'SELECT redo_lsn FROM pg_control_checkpoint()');
for my $name (sort(keys %records), 'sound')
{
	# two statements, in case the first record lies on two pages
	$node->safe_psql('postgres', "INSERT INTO $name SELECT g, 'after' FROM generate_series($_, $_ + 8) g") for $name =~ /^versions/ ? (2, 20) : ();
	next if $name =~ /^versions/;
	# the value of a row with level keys is in the value file at COMMIT: then the row is logged by its place
	$node->safe_psql('postgres', "INSERT INTO $name VALUES (2, " . ($name =~ /^batch/ ? "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 20000) g)" : "'after'") . ")");
	# another one, if the first lies on two pages
	$node->safe_psql('postgres', "INSERT INTO $name VALUES (3, 'after')") if $name =~ /^put|sound/;
}
kill_all($node);
system('cp', '-a', $data, "$data.killed") == 0 or die;
for my $name (sort keys %records) { forge_record($from, $records{$name}[0], $name, $records{$name}[1]); }
my $log_from = -s $node->logfile;
power_loss($node);
unlike(substr(slurp_file($node->logfile), $log_from), qr/terminated by signal|PANIC|FATAL/, 'the server starts and nothing crashes');
for my $name (sort keys %records) { damaged($name); }
is($node->safe_psql('postgres', 'SELECT k, v FROM sound ORDER BY k'), "1|before\n2|after\n3|after", 'a table beside them is whole');
recovers($_) for sort keys %records;

# ---- a run whose second entry has its value where the first one has (I 13) ----

create('run_twice', "shards '1'");
$node->safe_psql('postgres', q{INSERT INTO run_twice SELECT g, repeat('v', 100) FROM generate_series(1, 50) g; SELECT kvfdw_flush('run_twice')});
is(kv_check_clean($node, 'run_twice'), '', 'a run is sound');
$node->stop;
{
	my ($file) = grep { m{/$oid{run_twice}/\d+/.*\.run$} } kv_files($node);
	my $bytes = slurp_file("$data/kvfdw/$file");
	my $identity = substr($bytes, 8, 28) . pack('LQ', 0, 0);
	my $n = unpack('S', substr($bytes, 4096 + 4, 2));
	die "$file is not as expected" unless $n == 50 && unpack('L', substr($bytes, 4096, 4)) == crc32c($identity . substr($bytes, 4100, 4092));
	substr($bytes, 4096 + 16 + 8 * $n + 8, 8) = substr($bytes, 4096 + 16 + 8 * $n, 8);
	substr($bytes, 4096, 4) = pack('L', crc32c($identity . substr($bytes, 4100, 4092)));
	write_file("$data/kvfdw/$file", $bytes);
}
$node->start;
like($node->safe_psql('postgres', q{SELECT string_agg(problem, ', ') FROM kvfdw_check('run_twice')}), qr/value overlaps another value/, 'two entries of one value are found by kvfdw_check');
damaged('run_twice', 'SELECT v FROM run_twice');
recovers('run_twice');
is(kv_check_clean($node, 'run_twice'), '', 'and sound again');
$node->stop('immediate');

# ---- records that name no table ----

for my $case ([ 'a PUT of table 0', 0x00, 'sound', sub { substr($_[0], 4, 4) = pack('L', 0) } ])
{
	my ($what, $type, $name, $code) = @$case;
	system('rm', '-rf', $data) == 0 && system('cp', '-a', "$data.killed", $data) == 0 or die;
	unlink "$data/postmaster.pid";
	forge_record($from, $type, $name, $code);
	$log_from = -s $node->logfile;
	$node->append_conf('postgresql.conf', "kvfdw.boot_id = 'another boot'\n");
	$node->{_pid} = undef;
	ok(!$node->start(fail_ok => 1), "$what: no start");
	my $log = substr(slurp_file($node->logfile), $log_from);
	like($log, qr/(FATAL|PANIC):  kvfdw WAL record at .* is damaged/, 'the log says why');
	unlike($log, qr/signal 11/, 'and nothing has crashed');
}
system('rm', '-rf', "$data.killed");
done_testing();
