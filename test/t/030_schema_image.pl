# Promise: rows are decoded by what the schema image says they were written with; one
# that cannot be, or is of another version, is an error (XX001, 0A000), and TRUNCATE is the way out.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use KvTest;

plan skip_all => 'heap has no schema image' if heap_only();
my $node = kv_cluster('schema_image');

# The table file of a table; image($name, $code): replace the schema image by what $code makes of it.
sub table_file
{
	my ($name) = @_;
	my ($file) = grep { m{/table$} && index($_, '/' . $node->{oids}{$name} . '/') >= 0 } kv_files($node);
	return $node->data_dir . "/kvfdw/$file";
}

sub image
{
	my ($name, $code) = @_;
	my $path = table_file($name);
	my $bytes = slurp_file($path);
	my $old = substr($bytes, 152);
	is(crc32c(substr($bytes, 0, 52) . substr($bytes, 56)), unpack('L', substr($bytes, 52, 4)), "$name: the file is as expected");
	my $new = $code->($old);
	substr($bytes, 152) = $new;
	substr($bytes, 48, 4) = pack('L', length $new);
	substr($bytes, 52, 4) = pack('L', crc32c(substr($bytes, 0, 52) . substr($bytes, 56)));
	open(my $f, '>:raw', $path) or die;
	print $f $bytes;
	close $f;
	return;
}

my @tables = qw(added changed converted typed later forms short twice none align hex cut long);
$node->safe_psql('postgres', "CREATE TYPE mood AS ENUM ('sad', 'happy')");
$node->safe_psql('postgres', kv_table($_, $_ eq 'typed' ? 'k int, c mood, a int, t text' : 'k int, c bigint, a int, t text', 'k')) for @tables;
$node->safe_psql('postgres', "INSERT INTO $_ VALUES (1, " . ($_ eq 'typed' ? "'sad'" : 2) . ", 3, 'four')") for @tables;
$node->{oids}{$_} = $node->safe_psql('postgres', "SELECT '$_'::regclass::oid") for @tables;
$node->safe_psql('postgres', 'ALTER FOREIGN TABLE added ADD COLUMN n int DEFAULT 7, ADD COLUMN m text DEFAULT $$abc$$');
$node->stop;
like(slurp_file(table_file('added')), qr/kvfdw schema 1 .*\ncolumn 2 20 8 d 0 -\ncolumn 3 23 4 i 0 -\ncolumn 4 25 -1 i 0 -\ncolumn 5 23 4 i \d+ 07000000\ncolumn 6 25 -1 i \d+ 1c000000616263\n/s, 'the image tells length, alignment and what older rows have');
image('later', sub { $_[0] =~ s/schema 1/schema 2/r });
image('forms', sub { $_[0] =~ s/(raw \d+\n)/$1forms zip\n/r });
image('short', sub { $_[0] =~ s/ 8 d / 0 d /r });
image('twice', sub { $_[0] =~ s/column 3/column 2/r });
image('none', sub { $_[0] =~ s/column 2/column 0/r });
image('align', sub { $_[0] =~ s/ 8 d / 8 x /r });
image('hex', sub { $_[0] =~ s/ 8 d 0 -/ 8 d 0 0000000000g00000/r });
image('cut', sub { $_[0] =~ s/ 8 d 0 -/ 8 d 0 0000/r });
image('long', sub { $_[0] =~ s/ -1 i 0 -/ -1 i 0 1c0000006162/r });
$node->start;

# a server without the library lets ALTER change the type without the rows
$node->safe_psql('postgres', "UPDATE pg_attribute SET atttypid = 'int'::regtype, attlen = 4, attalign = 'i' WHERE attrelid = 'changed'::regclass AND attname = 'c'; ALTER FOREIGN TABLE changed DROP COLUMN c");
is($node->safe_psql('postgres', 'TABLE changed'), '1|3|four', 'column changed and dropped: the image tells length and alignment');
$node->safe_psql('postgres', "INSERT INTO changed VALUES (2, 5, 'six')");
is($node->safe_psql('postgres', 'TABLE changed ORDER BY k'), "1|3|four\n2|5|six", 'and rows are the same for a writer');
$node->safe_psql('postgres', "INSERT INTO converted VALUES (2, 5, 7, 'six'); ALTER FOREIGN TABLE converted ALTER c TYPE text; ALTER FOREIGN TABLE converted DROP COLUMN c");
is($node->safe_psql('postgres', 'TABLE converted ORDER BY k'), "1|3|four\n2|7|six", 'converted and dropped');
like(slurp_file(table_file('converted')), qr/kvfdw schema 1 .*\ncolumn 2 25 -1 i \d+ -\n/s, 'the conversion writes the rows again');
is($node->safe_psql('postgres', 'TABLE added'), '1|2|3|four|7|abc', 'what older rows have');
$node->safe_psql('postgres', 'DROP TYPE mood CASCADE');
is($node->safe_psql('postgres', 'TABLE typed'), '1|3|four', 'the type went with the column');

for my $case ([ later => '0A000' ], map { [ $_ => 'XX001' ] } qw(forms short twice none align hex cut long))
{
	my ($name, $state) = @$case;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nTABLE $name");
	like($err, qr/ERROR:  $state: .*"$name"/, "$name: $state");
	($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nINSERT INTO $name VALUES (2, 3, 4, 'five')");
	like($err, qr/ERROR:  $state: .*"$name"/, "$name: nor is it written");
	is($node->safe_psql('postgres', "TRUNCATE $name; INSERT INTO $name VALUES (2, 3, 4, 'five'); TABLE $name"), '2|3|4|five', "$name: TRUNCATE is the way out");
}
$node->stop;
done_testing();
