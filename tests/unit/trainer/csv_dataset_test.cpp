// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "farandole/core/error.h"
#include "farandole/trainer/data_files.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

using farandole::test::message_of;
using test::contains;
using testing::ElementsAre;

class Csv : public testing::Test {
 protected:
  std::shared_ptr<const Dataset> load(const std::string& text, const CsvOptions& options = {}) const {
    test::write_bytes(file(), text);
    return csv_dataset(file(), options);
  }
  Batch<double> all(const Dataset& data) const {
    Batch<double> batch;
    std::vector<std::uint32_t> samples;
    for (std::uint32_t i = 0; i < data.size(); ++i) samples.push_back(i);
    data.gather(samples, batch);
    return batch;
  }
  /// The message after the file's name.
  std::string refusal(const std::string& text, const CsvOptions& options = {}) const {
    const std::string message = message_of<DataError>([&] { load(text, options); });
    EXPECT_TRUE(message.starts_with(file().string())) << message;
    return message.substr(std::min(file().string().size(), message.size()));
  }
  std::string misuse(const std::string& text, const CsvOptions& options) const {
    return message_of<InvalidArgument>([&] { load(text, options); });
  }
  std::filesystem::path file() const { return temporary_.path() / "table.csv"; }

 private:
  test::TemporaryDirectory temporary_;
};

TEST_F(Csv, EveryColumnIsAnInputByDefault) {
  const auto data = load("a,b\n1,-2.5\n3e2, +4 \n");
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(data->shape(), Shape{2});
  EXPECT_EQ(data->classes(), 0);
  EXPECT_THAT(all(*data).inputs.host(), ElementsAre(1, -2.5, 300, 4));
}

TEST_F(Csv, ColumnsAreChosenByNameOrIndex) {
  const std::string text = "price,area,kind,rooms,weight\n10,100,flat,3,1\n20,200,house,5,0.5\n";
  const auto data = load(text, {.inputs = {"rooms", 1}, .targets = {"price"}, .label = "kind", .weight = "weight"});
  const Batch<double> batch = all(*data);
  EXPECT_THAT(batch.inputs.host(), ElementsAre(3, 100, 5, 200));
  EXPECT_EQ(data->target_shape(), Shape{1});
  EXPECT_THAT(batch.targets.host(), ElementsAre(10, 20));
  EXPECT_THAT(batch.labels, ElementsAre(0, 1));
  EXPECT_THAT(data->class_names(), ElementsAre("flat", "house"));
  EXPECT_THAT(batch.weights, ElementsAre(1, 0.5));
  const auto rest = load(text, {.targets = {"price"}, .label = "kind", .weight = "weight"});
  EXPECT_THAT(all(*rest).inputs.host(), ElementsAre(100, 3, 200, 5));
}

TEST_F(Csv, RowsWithoutHeaderHaveIndices) {
  const auto data = load("1;2;x\n3;4;y\n", {.header = false, .separator = ';', .label = 2});
  EXPECT_THAT(all(*data).inputs.host(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(
      contains(misuse("1,2\n", {.header = false, .inputs = {"a"}}), "'a' has a name, but the file has no header"));
}

TEST_F(Csv, WordsAreClassesInTheirOrder) {
  const auto data = load("x,y\n1,pear\n2,apple\n3,pear\n4,10\n", {.label = "y"});
  EXPECT_THAT(data->class_names(), ElementsAre("10", "apple", "pear"));
  EXPECT_THAT(all(*data).labels, ElementsAre(2, 1, 2, 0));
}

TEST_F(Csv, NumbersAreClassesThemselves) {
  const auto data = load("x,y\n1,3\n2,0\n3,10\n", {.label = "y"});
  EXPECT_EQ(data->classes(), 11);
  EXPECT_TRUE(data->class_names().empty());
  EXPECT_THAT(all(*data).labels, ElementsAre(3, 0, 10));
  EXPECT_EQ(load("x,y\n1,-1\n2,0\n", {.label = "y"})->classes(), 2);  // words
}

TEST_F(Csv, GivenClassesKeepTheirNumbers) {
  const auto data = load("x,y\n1,pear\n2,fig\n", {.label = "y", .classes = {"pear", "apple", "fig"}});
  EXPECT_EQ(data->classes(), 3);
  EXPECT_THAT(all(*data).labels, ElementsAre(0, 2));
  EXPECT_EQ(refusal("x,y\n1,pear\n2,fig\n", {.label = "y", .classes = {"pear"}}),
            ", line 3, column 2 ('y'): 'fig' is none of the 1 classes in CsvOptions::classes");
  EXPECT_TRUE(contains(misuse("x\n1\n", {.classes = {"a"}}), "no column of labels"));
}

TEST_F(Csv, QuotedFieldsHoldSeparatorsQuotesAndLines) {
  const auto data =
      load("\xef\xbb\xbf\"x\",\"the \"\"class\"\"\"\r\n\"1\",\"a, b\"\r\n2, \"two\nlines\" \r\n\r\n3,\"a, b\"",
           {.inputs = {"x"}, .label = "the \"class\""});
  EXPECT_THAT(all(*data).inputs.host(), ElementsAre(1, 2, 3));
  EXPECT_THAT(data->class_names(), ElementsAre("a, b", "two\nlines"));
  EXPECT_THAT(all(*data).labels, ElementsAre(0, 1, 0));
}

TEST_F(Csv, ManyQuotedQuotesInOneRowStayApart) {
  std::string row;
  for (int i = 0; i < 40; ++i) row += (i == 0 ? "" : ",") + std::string("\"n\"\"") + std::to_string(i) + "\"";
  const auto data = load(row + ",y\n" + "1" +
                             [] {
                               std::string rest;
                               for (int i = 1; i < 40; ++i) rest += "," + std::to_string(i);
                               return rest;
                             }() +
                             ",7\n",
                         {.inputs = {"n\"39", "n\"1"}});
  EXPECT_THAT(all(*data).inputs.host(), ElementsAre(39, 1));
}

TEST_F(Csv, ErrorsNameLineColumnAndEntry) {
  EXPECT_EQ(refusal("a,b\n1,2\n\n3,x\n"), ", line 4, column 2 ('b'): 'x' is not a number");
  EXPECT_EQ(refusal("a,b\n1,\n"), ", line 2, column 2 ('b'): the value is missing");
  EXPECT_EQ(refusal("a\n\"\"\n"), ", line 2, column 1 ('a'): the value is missing");
  EXPECT_EQ(refusal("1,2\n1,2 3\n", {.header = false}), ", line 2, column 2: '2 3' is not a number");
  EXPECT_EQ(refusal("a,b\n1,nan\n"), ", line 2, column 2 ('b'): 'nan' is not a finite number in the range of float");
  EXPECT_EQ(refusal("a,b\n1e39,1\n"), ", line 2, column 1 ('a'): '1e39' is not a finite number in the range of float");
  EXPECT_EQ(refusal("a,b\n\"1\n\",2\n"), ", line 2, column 1 ('a'): '1\n' is not a number");
  EXPECT_EQ(refusal("a,b\n\"\n\",2,3\n"), ", line 2: 3 fields, but the first row has 2");
  EXPECT_EQ(refusal("a,b\n1\n"), ", line 2: 1 fields, but the first row has 2");
  EXPECT_EQ(refusal("a,b\n1,\"2\n"), ", line 2, column 2: the quote has no end");
  EXPECT_EQ(refusal("a,b\n\"1\"x,2\n"), ", line 2, column 1: text follows the quote");
  EXPECT_EQ(refusal("a,y\n1,\n", {.label = "y"}), ", line 2, column 2 ('y'): the value is missing");
  EXPECT_EQ(refusal("a,y\n1,\"two\nlines\"\nx,three\n", {.label = "y"}),
            ", line 4, column 1 ('a'): 'x' is not a number");
  EXPECT_EQ(refusal("a,w\n1,-1\n", {.weight = "w"}), ", line 2, column 2 ('w'): a weight must be at least 0");
}

TEST_F(Csv, FilesWithoutRowsAreRefused) {
  EXPECT_EQ(refusal(""), " has no rows");
  EXPECT_EQ(refusal("\n \n"), " has no rows");
  EXPECT_EQ(refusal("a,b\n"), " has no rows below the header");
  EXPECT_TRUE(contains(message_of<DataError>([] { csv_dataset("/nowhere/x.csv"); }), "cannot open /nowhere/x.csv"));
}

TEST_F(Csv, WrongColumnsAreRefused) {
  const std::string text = "a,b,b\n1,2,3\n";
  EXPECT_TRUE(contains(misuse(text, {.inputs = {"c"}}),
                       "there is no column 'c' in " + file().string() + ", which has 'a', 'b', 'b'"));
  EXPECT_TRUE(contains(misuse(text, {.inputs = {3}}), "there is no column 3"));
  EXPECT_TRUE(contains(misuse(text, {.inputs = {-1}}), "there is no column -1"));
  EXPECT_TRUE(contains(misuse(text, {.inputs = {"b"}}), "has two columns 'b'; give the index"));
  EXPECT_TRUE(contains(misuse(text, {.inputs = {"a"}, .targets = {0}}), "column 1 ('a') is used twice"));
  EXPECT_TRUE(contains(misuse("a\n1\n", {.targets = {"a"}}), "no column of " + file().string() + " is an input"));
  EXPECT_TRUE(contains(misuse(text, {.separator = '"'}), "the separator must not be a quote"));
}

}  // namespace
}  // namespace farandole::trainer
