# Promise: clients of memcached and SQL agree when a row expires; a client changes nothing of what SQL has written in
# the columns of flags and expiry but what it sets; and a value that is no text takes the old one along.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;
use KvMemcached;

my $node = mc_cluster('columns', 'kvfdw.memcached_reap_interval' => 0);
my ($c, $b) = (mc_connect($node), mc_connect($node));
sub ask { return mc_ask($c, $_[0]); }
sub sql { return answer($node, $_[0]); }
sub store { my ($command, $key, $value) = @_; return ask("$command $key 0 0 " . length($value) . "\r\n$value\r\n"); }
sub value_of { my ($key) = @_; return scalar(mc_get($c, $key)) // 'none'; }

# ---- when a row expires ----
my @late;
for my $i (1 .. 20)
{
	sql("INSERT INTO cache VALUES ('now$i', 0, clock_timestamp(), 'x')");
	push @late, $i if ask("mg now$i\r\n") ne 'EN';
}
is("@late", '', 'a row that has expired for SQL is no item, whatever the fraction of its second');
sub in_an_hour
{
	my ($key, $fraction) = @_;
	return sql("INSERT INTO cache VALUES ('$key', 5, '2037-01-01 00:00:00$fraction+00', 'x')");
}
sub expires { my ($key) = @_; return sql("SET timezone = 'UTC'; SELECT expires FROM cache WHERE key = '$key'"); }
in_an_hour('half', '.5');
is(store('append', 'half', '1') . store('prepend', 'half', '1') . ask("incr half 1\r\n"),
	'STOREDSTOREDCLIENT_ERROR cannot increment or decrement non-numeric value', 'a client changes values');
sql("UPDATE cache SET value = '7' WHERE key = 'half'");
is(ask("incr half 1\r\n") . ask("ma half v\r\n") . mc_line($c) . ask("mg half R2147483647\r\n") . ask("md half I\r\n"),
	'8VA 19HD WHD', '... numbers, and who is to make the item anew');
is(expires('half'), '2037-01-01 00:00:00.5+00', '... and leaves the fraction of a second of its time');
is(ask("touch half 2114380801\r\n") . expires('half'), 'TOUCHED2037-01-01 00:00:01+00', 'a time that is set is the one that is asked for');
in_an_hour('half2', '.999999');
is(ask("set half2 0 2114380801 1\r\nx\r\n") . expires('half2'), 'STORED2037-01-01 00:00:01+00', '... also by set');
sql("INSERT INTO cache VALUES ('ever', 0, 'infinity', '1')");
is(ask("incr ever 1\r\n") . store('append', 'ever', '1') . ask("mg ever t v\r\n") . mc_line($c) . expires('ever'),
	'2STOREDVA 2 t-121infinity', 'infinity stays');
is(ask("touch ever 0\r\n") . expires('ever'), 'TOUCHED', '... until never is set');

# ---- flags ----
my $error = 'SERVER_ERROR 22003 flags of the row are out of range';
sql("CREATE FOREIGN TABLE more ($mc_table, note text) SERVER kvfdw OPTIONS (key 'key', memcached 'more:');
	GRANT SELECT, INSERT, UPDATE, DELETE ON more TO web");
for my $table ('cache', 'more')
{
	my $key = $table eq 'more' ? 'more:f' : 'f';
	my $note = $table eq 'more' ? ", 'kept'" : '';
	my $noted = $table eq 'more' ? '|kept' : '';
	for my $flags (-1, '17179869184', '9223372036854775807', '-9223372036854775808')
	{
		sql("DELETE FROM $table; INSERT INTO $table VALUES ('$key', $flags, '2037-01-01 00:00:00.5+00', '1'$note)");
		my @refused = ("get $key\r\n", "gets $key\r\n", "gat 0 $key\r\n", "mg $key\r\n", "mg $key f v T0\r\n", "touch $key 0\r\n", "incr $key 1\r\n", "ma $key\r\n",
			map({ "$_ $key 0 0 1\r\nx\r\n" } qw(add replace append prepend)), "cas $key 0 0 1 1\r\nx\r\n", "md $key C1\r\n", "md $key I\r\n", "me $key\r\n");
		is(join('|', map { ask($_) } @refused), join('|', ($error) x @refused), "$table: flags that are $flags are an error");
		is(join(' ', mc_packet($b, 0, $key)), '132 ' . substr($error, length 'SERVER_ERROR '), '... in the binary protocol, too');
		is(sql("SELECT flags, expires = '2037-01-01 00:00:00.5+00', value FROM $table"), "$flags|t|\\x31", '... and nothing was changed');
		is(ask("set $key 7 0 1\r\n2\r\n") . sql("SELECT * FROM $table"), "STORED$key|7||\\x32$noted", '... set makes a new item');
		sql("UPDATE $table SET flags = $flags");
		is(ask("delete $key\r\n") . sql("SELECT count(*) FROM $table"), 'DELETED0', '... and delete removes it');
		sql("INSERT INTO $table VALUES ('$key', $flags, '2000-01-01', '1')");
		is(ask("get $key\r\n") . ask("add $key 7 0 1\r\n2\r\n") . sql("SELECT * FROM $table"), "ENDSTORED$key|7||\\x32" . ($noted && '|'), '... one that has expired is none');
	}
	sql("DELETE FROM $table; INSERT INTO $table VALUES ('$key', 17179869183, NULL, '1')");
	is(ask("mg $key f\r\n") . store('append', $key, '2') . sql("SELECT flags FROM $table"), 'HD f4294967295 Z XSTORED4294967295', "$table: all bits that clients and the meta commands have");
}
sql("DELETE FROM cache; INSERT INTO cache VALUES ('a', 0, NULL, '1'), ('b', -1, NULL, '1'), ('c', 0, NULL, '1')");
is(join('|', ask("get a b c\r\n"), map { mc_line($c) } 1 .. 2), "VALUE a 0 1|1|$error", 'a get of many keys ends with the error');
is(value_of('c'), 1, '... and the connection goes on');

# ---- values that are no text ----
my $bad = "CLIENT_ERROR value is not text in the database's encoding";
sql(q{CREATE FOREIGN TABLE words (key bytea, value text, flags bigint) SERVER kvfdw OPTIONS (key 'key', memcached 'w:', memcached_columns 'value, flags');
	GRANT SELECT, INSERT, UPDATE, DELETE ON words TO web});
for my $value ("\xff", "a\0", "x" x 1000 . "\xc3")
{
	my $length = length $value;
	store('set', 'w:a', 'old');
	is(store($_, 'w:a', $value) . value_of('w:a'), "${bad}old", "$_ of a value that is no text leaves what is there") for qw(add replace append prepend);
	is(ask("cas w:a 0 0 $length 1\r\n$value\r\n") . value_of('w:a'), "${bad}old", '... cas, too');
	is(ask("ms w:a $length M$_\r\n$value\r\n") . value_of('w:a'), "${bad}old", "... ms in mode $_") for qw(E A P R);
	is(store('set', 'w:a', $value) . value_of('w:a'), "${bad}none", '... of set the old one goes, as it would be outdated');
	store('set', 'w:a', 'old');
	is(ask("set w:a 0 0 $length noreply\r\n$value\r\nmn\r\n") . value_of('w:a'), 'MNnone', '... be nothing said of it');
	store('set', 'w:a', 'old');
	is(ask("ms w:a $length q\r\n$value\r\n") . value_of('w:a'), "${bad}none", '... so of ms');
	store('set', 'w:a', 'old');
	is(join(' ', mc_packet($b, 1, 'w:a', $value, "\0" x 8)) . value_of('w:a'), '4 ' . substr($bad, length 'CLIENT_ERROR ') . 'none', '... and of set in the binary protocol');
	is(store('set', 'w:a', $value) . value_of('w:a'), "${bad}none", 'where nothing is there nothing is made');
}
store('set', 'w:a', 'old');
sql('REVOKE DELETE ON words FROM web');
is(store('set', 'w:a', "\xff") . value_of('w:a'), 'SERVER_ERROR 42501 permission denied for table wordsold', 'who may not delete leaves the old one, and is told so');
is(ask("set w:b 0 0 1\r\nx\r\nset w:a 0 0 1\r\n\xff\r\nset w:c 0 0 1\r\nx\r\n") . mc_line($c) . mc_line($c),
	'STOREDSERVER_ERROR 42501 permission denied for table wordsSTORED', '... and others are served');
is(kv_check_clean($node, $_), '', "kvfdw_check finds nothing in $_") for qw(cache more words);
$node->stop;
done_testing();
